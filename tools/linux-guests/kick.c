// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes Linux guests reliable inside an emulated KVM host (docs/lab.md, "Linux guests inside").
 *QEMU's VMRUN may deliver an injected interrupt a second time unless the guest is left soon after.
 *A perf event at every entry that injects, with a wake-up at each, raises a self-IPI: the CPU
 *leaves the guest before its first instruction.
 *
 * In the emulated host, as root, with tracefs mounted and kvm loaded, before guests are started:
 *	kick &
 * It works if the count of IRQ work interrupts (IWI) in /proc/interrupts rises with the guests'.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRACEPOINT "/sys/kernel/tracing/events/kvm/kvm_entry/id"
/* Bit 31 of the entry's interruption information: it injects. */
#define INJECTS "intr_info & 0x80000000"

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void arm(int cpu, unsigned long long tracepoint)
{
	struct perf_event_attr event = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(event),
		.config = tracepoint,
		.sample_period = 1,
		.wakeup_events = 1,
		.sample_type = PERF_SAMPLE_TIME,
		.disabled = 1,
	};
	long page = sysconf(_SC_PAGESIZE);
	int fd = (int)syscall(SYS_perf_event_open, &event, -1, cpu, -1, 0);

	if (fd < 0)
		die("perf_event_open");
	if (ioctl(fd, PERF_EVENT_IOC_SET_FILTER, INJECTS))
		die("filter (this kernel's kvm_entry has no intr_info?)");
	/* Mapped read-only it is overwritten for ever: nobody has to read. */
	if (mmap(NULL, 2 * page, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		die("mmap");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
}

int main(void)
{
	FILE *file = fopen(TRACEPOINT, "r");
	unsigned long long id;
	long cpu, cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!file || fscanf(file, "%llu", &id) != 1)
		die(TRACEPOINT);
	for (cpu = 0; cpu < cpus; cpu++)
		arm((int)cpu, id);
	puts("armed");
	fflush(stdout);
	/* The events go with this process. */
	for (;;)
		pause();
}
