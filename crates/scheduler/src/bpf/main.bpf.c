/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Overbook's host scheduler: fair between VMs, clever inside one.
 *
 * The problem. A host has more vCPUs than CPUs. A vCPU that holds a lock, or must answer an IPI, is
 * preempted; its siblings spin or halt, and the guest stands still. The hardware notices spins, KVM
 * guesses whom the spinner waits for and calls yield_to(), and there the hint is nearly lost: EEVDF
 * keeps it for one pick, on the sibling's own runqueue.
 *
 * The idea. What is fair is settled between tenants, and not between vCPUs. A tenant is a VM with
 * all that belongs to it, a group of ordinary tasks, or a task of the root group. It has one
 * virtual time for the whole host, ages by its rate down the tree of cpu.weight (tree.bpf.h), and
 * has turns (policy/turn.h). While a CPU serves a VM, it runs whichever of its vCPUs is worth most
 * to it now (policy/tiers.h): its answer has come, it has an interrupt to take, it was preempted at
 * work, or last, spinning. Whose vCPU runs makes no difference to who pays: a spinner's slice goes
 * on with another vCPU, and nobody outside the VM waits longer for that.
 *
 * The terms. Turns, deadlines, the level and the tide are in policy/turn.h.
 *
 * - key: by which a task is queued: its tenant's deadline, and how far the task stands from it
 *   among the members. If the tenant's turn ends meanwhile, the key is found anew when the task
 *   comes to the head of its queue.
 * - LLC queue: a DSQ per last-level cache, by key; CPU queue: a DSQ per CPU for tasks that can run
 *   nowhere else; and DSQs of pools, which are sets of CPUs that tasks are bound to. A CPU takes
 *   the earliest of the heads of the queues that it looks at. SCHED_IDLE tasks have queues of their
 *   own, and tasks whose group has used its cpu.max are parked in another.
 * - home: the LLC in whose queue a VM's vCPUs wait, if it fits into one (policy/home.h).
 * - class: whether a VM's slices are short, usual or long, and whom its vCPUs preempt as they wake
 *   up (policy/class.h). What it is due does not depend on it.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

#include "enqueue.bpf.h"
#include "pick.bpf.h"
#include "yield.bpf.h"
#include "running.bpf.h"
#include "taken.bpf.h"
#include "timers.bpf.h"
#include "tasks.bpf.h"
#include "groups.bpf.h"

/* Makes the queues of an LLC, and of pools there. */
static s32 create_queues_of(u32 llc)
{
	s32 err = scx_bpf_create_dsq(llc_dsq(llc), -1)
			  ?: scx_bpf_create_dsq(idle_dsq(llc_dsq(llc)), -1);
	u32 i;

	bpf_for (i, 1, OVB_MAX_POOLS)
		err = err ?: scx_bpf_create_dsq(PARKED + i * OVB_MAX_LLCS + llc, -1);
	return err;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_init)
{
	s32 err = init_preferred() ?: scx_bpf_create_dsq(PARKED, -1);
	u32 i;

	if (err)
		return err;
	bpf_for (i, 0, OVB_MAX_NODES / 64)
		limited_nodes[bounded(i, OVB_MAX_NODES / 64)] = 0;
	bpf_for (i, 0, 2 * OVB_MAX_CPUS) {
		pool_at(i)->users = 0;
		pool_at(i)->level = tide;
		pool_at(i)->offset = 0;
	}
	bpf_for (i, 0, nr_llcs) {
		err = create_queues_of(i);
		if (err)
			return err;
	}
	bpf_for (i, 0, nr_cpus) {
		struct cpu_ctx *cpuc = cpu_ctx_of(i);

		if (cpuc) {
			__builtin_memset(cpuc->longest, 0, sizeof(cpuc->longest));
			__builtin_memset(cpuc->broken, 0, sizeof(cpuc->broken));
			cpuc->level = cpuc->base = tide;
			cpuc->goes_on = 0;
			cpuc->debt_ns = 0;
			cpuc->pools = 0;
		}
		err = scx_bpf_create_dsq(cpu_dsq(i), -1)
			      ?: scx_bpf_create_dsq(idle_dsq(cpu_dsq(i)), -1);
		if (err)
			return err;
	}
	return 0;
}

void BPF_STRUCT_OPS(overbook_exit, struct scx_exit_info *ei)
{
	nr_limited = 0;
	UEI_RECORD(uei, ei);
}

/* ENQ_LAST: what may not stay on a CPU is queued, even if nobody else wants that CPU. */
/* clang-format off */
SCX_OPS_DEFINE(overbook_ops,
	.select_cpu           = (void *)overbook_select_cpu,
	.enqueue              = (void *)overbook_enqueue,
	.dispatch             = (void *)overbook_dispatch,
	.update_idle          = (void *)overbook_update_idle,
	.yield                = (void *)overbook_yield,
	.running              = (void *)overbook_running,
	.stopping             = (void *)overbook_stopping,
	.tick                 = (void *)overbook_tick,
	.runnable             = (void *)overbook_runnable,
	.quiescent            = (void *)overbook_quiescent,
	.init_task            = (void *)overbook_init_task,
	.exit_task            = (void *)overbook_exit_task,
	.enable               = (void *)overbook_enable,
	.set_weight           = (void *)overbook_set_weight,
	.set_cpumask          = (void *)overbook_set_cpumask,
	.cgroup_init          = (void *)overbook_cgroup_init,
	.cgroup_exit          = (void *)overbook_cgroup_exit,
	.cgroup_set_weight    = (void *)overbook_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)overbook_cgroup_set_bandwidth,
	.init                 = (void *)overbook_init,
	.exit                 = (void *)overbook_exit,
	.flags                = SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE,
	.timeout_ms           = 30000,
	.name                 = "overbook");
/* clang-format on */
