/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Running a VM's vCPUs together, where that helps (policy/gang.h). A CPU that picks a vCPU of such
 * a VM opens a turn of the LLC; until it ends, the LLC's other CPUs pick siblings as they become
 * free, for what is left of the turn, so that all end together and the next VM can begin together.
 *
 * A sibling goes before an earlier deadline only if that is another vCPU's, and not earlier by more
 * than a slice: shares stay what they are, and nobody but vCPUs ever waits for a gang.
 */
#ifndef OVERBOOK_GANG_BPF_H
#define OVERBOOK_GANG_BPF_H

#include "gang.h"
#include "select.bpf.h"

static struct gang_turn *gang_turn(u32 llc)
{
	return &gang_turns[bounded(llc, OVB_MAX_LLCS)];
}

static bool wants_gang(u32 vm)
{
	struct vm_ctx *vmc = vm && gang_choice ? vm_ctx(vm) : NULL;

	return vmc && (gang_choice == OVB_GANG_ON || vmc->gang.mode == OVB_GANG_TOGETHER);
}

/* Makes CPUs of an LLC that run other VMs' vCPUs look for one of this VM: turns end at ticks, and
 * CPUs that change over one after the other are no gang. */
__noinline int call_gang(u32 llc, u32 vm)
{
	struct gang_turn *turn = gang_turn(llc);
	u32 cpu, self = bpf_get_smp_processor_id();
	struct vm_ctx *vmc = vm_ctx(vm);

	if (!vmc)
		return 0;
	/* In memory: the verifier would follow every value of a variable. */
	turn->wanted = nr_queued_vcpus(vmc);
	bpf_for (cpu, 0, nr_cpus) {
		struct cpu_ctx *cpuc = cpu_ctx_of(cpu);

		if (!turn->wanted)
			break;
		if (!cpuc || !cpuc->vm || cpuc->vm == vm || cpu == self || llc_of(cpu) != llc)
			continue;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		turn->wanted--;
	}
	return 0;
}

/* Somebody of a VM begins a turn of a slice. */
__noinline int open_gang_turn(u32 llc, u32 vm)
{
	struct gang_turn *turn = gang_turn(llc);
	u64 now;

	if (!wants_gang(vm))
		return 0;
	now = scx_bpf_now();
	/* One at a time, or the CPUs would never come together. */
	if (turn->vm && (ovb_s64)(turn->until - now) > (ovb_s64)least_grant_ns)
		return 0;
	turn->vm = vm;
	turn->until = now + slice_ns;
	return call_gang(llc, vm);
}

/* vCPUs that are picked during a turn, whosever they are, end with it. */
static void end_with_gang_turn(struct task_struct *p, struct task_ctx *taskc, u32 llc, u64 now)
{
	struct gang_turn *turn = gang_turn(llc);
	ovb_s64 left = turn->until - now;

	if (!turn->vm || left <= 0 || left >= (ovb_s64)taskc->turn_ns)
		return;
	taskc->turn_ns = left;
	scx_bpf_task_set_slice(p, left);
}

/* Moves a sibling of the present turn to this CPU. `first` is the earliest deadline in the queue.
 * Returns 1 if somebody was moved. */
__noinline int run_gang(u32 llc, u64 first)
{
	struct gang_turn *turn = gang_turn(llc);
	u64 now = scx_bpf_now(), left, dsq = llc_dsq(llc);
	struct vm_ctx *vmc;
	u32 i, id;

	if (!turn->vm || now + least_grant_ns >= turn->until || !wants_gang(turn->vm))
		return 0;
	left = turn->until - now;
	vmc = vm_ctx(turn->vm);
	if (!vmc)
		return 0;
	id = vmc->next;
	bpf_for (i, 0, 2 * SCAN) {
		struct task_struct *p;
		struct task_ctx *taskc;
		int moved = 0;

		/* Who works goes before who waits. */
		id = mask_next(i < SCAN ? vmc->at_work : vmc->waiting, bounded(id, OVB_MAX_VCPUS));
		if (id >= OVB_MAX_VCPUS) {
			id = 0;
			continue;
		}
		p = bpf_task_from_pid(vmc->pids[bounded(id, OVB_MAX_VCPUS)]);
		id++;
		if (!p)
			continue;
		taskc = task_ctx(p);
		if (taskc && taskc->dsq == dsq &&
		    available(p, taskc, bpf_get_smp_processor_id(), left) &&
		    !ovb_vtime_before(first + weighted(taskc, slice_ns), taskc->deadline)) {
			taskc->turn_ns = left;
			moved = take_from_queue(p, dsq, left);
		}
		bpf_task_release(p);
		if (moved) {
			count(OVB_COUNT_GANG);
			return 1;
		}
	}
	return 0;
}

#endif
