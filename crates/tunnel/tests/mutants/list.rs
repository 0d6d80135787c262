// SPDX-License-Identifier: GPL-2.0-only
//! The faults.

/// A fault: a text that is in a file once, and what stands there instead.
pub struct Mutant {
    pub name: &'static str,
    pub file: &'static str,
    pub find: &'static str,
    pub put: &'static str,
    /// Why the gauntlet does not find it.
    pub missed: Option<&'static str>,
}

const fn mutant(name: &'static str, file: &'static str, find: &'static str, put: &'static str) -> Mutant {
    Mutant { name, file, find, put, missed: None }
}

pub const MUTANTS: &[Mutant] = &[
    mutant("a refund that is lost", "place.bpf.h", "\trefund(taskc->donor, bill.refund);\n", ""),
    mutant(
        "a refund paid twice",
        "place.bpf.h",
        "\trefund(taskc->donor, bill.refund);\n",
        "\trefund(taskc->donor, bill.refund);\n\trefund(taskc->donor, bill.refund);\n",
    ),
    mutant(
        "a refund with the wrong sign",
        "place.bpf.h",
        "__sync_fetch_and_sub(&donorc->vtime, weighted(donorc, ns));",
        "__sync_fetch_and_add(&donorc->vtime, weighted(donorc, ns));",
    ),
    mutant(
        "a grant that nobody pays",
        "yield.bpf.h",
        "\t\t__sync_fetch_and_add(&fromc->vtime, weighted(fromc, price));\n",
        "",
    ),
    mutant(
        "a reference that leaks",
        "place.bpf.h",
        "weighted(donorc, ns));\n\tbpf_task_release(donor);\n",
        "weighted(donorc, ns));\n",
    ),
    mutant(
        "a cgroup that leaks",
        "cgroup.bpf.h",
        "\tbpf_cgroup_release(leaf);\n\tif (!effective)",
        "\tif (!effective)",
    ),
    mutant("no clock for pools", "place.bpf.h", "return cpuc ? cpuc->vtime : 0;", "return 0;"),
    mutant(
        "a clock that stands still",
        "dispatch.bpf.h",
        "\t\t*clock = ovb_vtime_max(*clock, taskc->vtime);\n",
        "\t\tovb_vtime_max(*clock, taskc->vtime);\n",
    ),
    mutant(
        "a clock of another LLC",
        "place.bpf.h",
        "return llc_vtime[llc & (OVB_MAX_LLCS - 1)];",
        "return llc_vtime[(llc + 1) & (OVB_MAX_LLCS - 1)];",
    ),
    mutant(
        "no kick of an idle CPU",
        "wake.bpf.h",
        "\t\tif (idle >= 0) {\n\t\t\tscx_bpf_kick_cpu(idle, SCX_KICK_IDLE);\n",
        "\t\tif (idle >= 0) {\n",
    ),
    mutant(
        "no kick for a bound task",
        "wake.bpf.h",
        "\t\tcount(OVB_COUNT_PREEMPT);\n\t\tscx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);\n",
        "\t\tcount(OVB_COUNT_PREEMPT);\n",
    ),
    mutant(
        "a kick of the wrong CPU",
        "wake.bpf.h",
        "\t\tcount(OVB_COUNT_PREEMPT);\n\t\tscx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);\n",
        "\t\tcount(OVB_COUNT_PREEMPT);\n\t\tscx_bpf_kick_cpu(0, SCX_KICK_PREEMPT);\n",
    ),
    mutant(
        "a wake-up that goes to the wrong CPU",
        "main.bpf.c",
        "scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);\n\t\treturn cpu;",
        "scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);\n\t\treturn prev_cpu;",
    ),
    Mutant {
        missed: Some("the task takes the way over the queue, and the kick from there preempts the same CPU"),
        ..mutant(
            "no preemption by whoever wakes",
            "main.bpf.c",
            "if (cpu < 0 || !goes_first(taskc, cpu))",
            "if (true)",
        )
    },
    mutant(
        "a task that is never queued",
        "main.bpf.c",
        "\tif (!bound)\n\t\tcpu = preferred_cpu(p, cpu);",
        "\tif (taskc->gave_up)\n\t\treturn;\n\tif (!bound)\n\t\tcpu = preferred_cpu(p, cpu);",
    ),
    mutant(
        "the queue of the wrong CPU",
        "main.bpf.c",
        "\tdsq = bound ? cpu_dsq(cpu) :",
        "\tdsq = bound ? cpu_dsq(cpu ^ 1) :",
    ),
    Mutant {
        missed: Some("its CPU finds it there, and others pass it over: right, and only slower"),
        ..mutant(
            "a bound task in the LLC's queue",
            "main.bpf.c",
            "\tdsq = bound ? cpu_dsq(cpu) :",
            "\tdsq = bound && taskc->idle_class ? cpu_dsq(cpu) :",
        )
    },
    mutant(
        "the queue of the first LLC for all",
        "main.bpf.c",
        ": llc_dsq(llc_of(cpu));\n\tif (taskc->idle_class)",
        ": llc_dsq(0);\n\tif (taskc->idle_class)",
    ),
    mutant(
        "one LLC index for all",
        "place.bpf.h",
        "return cpu_llc[(u32)cpu & (OVB_MAX_CPUS - 1)];",
        "return cpu_llc[(u32)cpu & (OVB_MAX_CPUS - 1)] + 1;",
    ),
    mutant(
        "a queue that no other LLC looks at",
        "dispatch.bpf.h",
        "bpf_for (i, 1, nr_llcs) {",
        "bpf_for (i, 1, 1) {",
    ),
    mutant("a mask bit that is never cleared", "vm.bpf.h", "\tmask_clear(vmc->at_work, id);\n", ""),
    mutant("a queue that is never left", "main.bpf.c", "\tvcpu_left_queue(taskc, true);\n", ""),
    Mutant {
        missed: Some(
            "no task sleeps while it is queued; when a change takes it out of the queue, it comes back at once",
        ),
        ..mutant("a sleeper that stays queued", "main.bpf.c", "\t\tvcpu_left_queue(taskc, false);\n", "")
    },
    Mutant {
        missed: Some("the end of the interrupt clears the bit as well"),
        ..mutant("interrupts that stay for ever", "vm.bpf.h", "\tmask_clear(vmc->interrupted, id);\n", "")
    },
    mutant("a vCPU that is not counted out", "vm.bpf.h", "\t__sync_fetch_and_sub(&vmc->at.alive, 1);\n", ""),
    mutant(
        "an affinity that is not asked for",
        "select.bpf.h",
        "return !is_migration_disabled(p) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);",
        "return true;",
    ),
    Mutant {
        missed: Some("the kernel takes a CPU of the affinity instead, and the task preempts there"),
        ..mutant(
            "a victim outside the affinity",
            "wake.bpf.h",
            "llc_of(cpu) != llc || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||",
            "llc_of(cpu) != llc ||",
        )
    },
    mutant(
        "a turn that is not charged",
        "main.bpf.c",
        "\tcharge(p, taskc, now);\n\ttaskc->running_since = 0;",
        "\ttaskc->running_since = 0;",
    ),
    mutant(
        "an extended turn that is not charged",
        "dispatch.bpf.h",
        "\tcharge(prev, prevc, scx_bpf_now());\n\tprevc->deadline",
        "\tprevc->deadline",
    ),
    mutant(
        "lag without bound",
        "place.bpf.h",
        "\tif (ovb_vtime_before(taskc->vtime, floor))\n\t\ttaskc->vtime = floor;\n",
        "",
    ),
    mutant(
        "a sign error between queues",
        "main.bpf.c",
        "\tif (has_shared && (!has_own || ovb_vtime_before(shared, own)) &&",
        "\tif (has_shared && (!has_own || ovb_vtime_before(own, shared)) &&",
    ),
    mutant(
        "a sign error before a turn is extended",
        "main.bpf.c",
        "if (ovb_vtime_before(prevc->vtime + weighted(prevc, slice_ns), first)) {",
        "if (ovb_vtime_before(first, prevc->vtime + weighted(prevc, slice_ns))) {",
    ),
    mutant(
        "a sign error in a preemption",
        "wake.bpf.h",
        "!ovb_vtime_before(taskc->deadline + preempt_margin_ns, victim->deadline))",
        "ovb_vtime_before(taskc->deadline + preempt_margin_ns, victim->deadline))",
    ),
    mutant(
        "a yielder that keeps its CPU",
        "main.bpf.c",
        "if (prevc && !prevc->yielded && !prevc->idle_class &&",
        "if (prevc && !prevc->idle_class &&",
    ),
    mutant(
        "a nomination that is forgotten",
        "yield.bpf.h",
        "\tcpuc->nominee = s->best_pid;",
        "\tcpuc->nominee = 0;",
    ),
    mutant(
        "the wrong nominee",
        "yield.bpf.h",
        "\tcpuc->nominee = s->best_pid;",
        "\tcpuc->nominee = from->pid;",
    ),
    Mutant {
        missed: Some("receivers have an interrupt to take, and are found by that"),
        ..mutant(
            "receivers that are not known",
            "select.bpf.h",
            "\tif (s->best == OVB_TIER_RECEIVER)\n\t\treturn 0;\n\tif (s->answered &&",
            "\ts->best = 0;\n\tif (s->answered &&",
        )
    },
    mutant(
        "an IPI that is waited for too long",
        "select.bpf.h",
        "\t\tslot->used = 0;\n\t} else {\n\t\ts->awaits",
        "\t} else {\n\t\ts->awaits",
    ),
    mutant("overtime without end", "handoff.h", "left = overtime ? 0 : least;", "left = least;"),
    mutant(
        "nice that is ignored",
        "cgroup.bpf.h",
        ": ovb_weight_from_cgroup(p->scx.weight);",
        ": ovb_weight_from_cgroup(100);",
    ),
    mutant(
        "a group's weight that is ignored",
        "cgroup.bpf.h",
        "\tu32 weight = group->weight;",
        "\tu32 weight = 1024;",
    ),
    mutant("a group that is never idle", "main.bpf.c", "\tgroup_member(p, false);\n", ""),
    mutant(
        "an idle CPU that is not claimed",
        "wake.bpf.h",
        ": scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);",
        ": -1;",
    ),
    mutant(
        "an idle CPU that wakes nobody",
        "main.bpf.c",
        "\tif (idle) {\n\t\tplace",
        "\tif (false) {\n\t\tplace",
    ),
    mutant(
        "a slice of nothing",
        "main.bpf.c",
        "scx_bpf_dsq_insert_vtime(p, dsq, slice_ns,",
        "scx_bpf_dsq_insert_vtime(p, dsq, 1,",
    ),
    mutant(
        "a turn without end",
        "dispatch.bpf.h",
        "scx_bpf_task_set_slice(prev, slice_ns);",
        "scx_bpf_task_set_slice(prev, 1000 * slice_ns);",
    ),
    mutant(
        "no test for a task without state",
        "main.bpf.c",
        "\tif (!taskc) {\n\t\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);\n\t\treturn;\n\t}\n",
        "",
    ),
    mutant(
        "no state for a task that had none",
        "main.bpf.c",
        "\t\ttaskc = make_task_ctx(p);\n",
        "\t\ttaskc = NULL;\n",
    ),
    mutant(
        "time that is booked twice",
        "place.bpf.h",
        "\t\t\tstats->run_ns += used;\n\t\t\tstats",
        "\t\t\tstats->run_ns += 2 * used;\n\t\t\tstats",
    ),
    mutant(
        "SCHED_IDLE treated as normal",
        "main.bpf.c",
        "\ttaskc->idle_class = idle_class;\n",
        "\ttaskc->idle_class = false;\n",
    ),
    mutant(
        "SCHED_IDLE that is never run",
        "dispatch.bpf.h",
        "if (!taskc || !has_waited(taskc, scx_bpf_now(), patience_ns))",
        "if (true)",
    ),
    mutant("a CPU that a higher class takes", "taken.bpf.h", "\tscx_bpf_reenqueue_local();\n", ""),
    mutant(
        "a move where none is allowed",
        "main.bpf.c",
        "\tnotify(p, taskc, cpu, woken, bound);\n",
        "\tscx_bpf_dsq_move_to_local(llc_dsq(0), 0);\n\tnotify(p, taskc, cpu, woken, bound);\n",
    ),
    mutant(
        "a queue in two orders",
        "main.bpf.c",
        "scx_bpf_dsq_insert_vtime(p, dsq, slice_ns, taskc->deadline, enq_flags);",
        "if (woken)\n\t\t\tscx_bpf_dsq_insert(p, dsq, slice_ns, enq_flags);\n\t\telse\n\t\t\tscx_bpf_dsq_insert_vtime(p, dsq, slice_ns, taskc->deadline, enq_flags);",
    ),
    mutant(
        "a queue that is read without its end",
        "select.bpf.h",
        "\t\ttaken = move_here(&it, p, turn_ns);\n\tbpf_iter_scx_dsq_destroy(&it);\n",
        "\t\ttaken = move_here(&it, p, turn_ns);\n",
    ),
    Mutant {
        missed: Some("sched_ext looks itself whether the task is still in that queue"),
        ..mutant(
            "a nominee after it was queued elsewhere",
            "yield.bpf.h",
            "\t    toc->queued_since && may_run_on(to, cpu))",
            "\t    may_run_on(to, cpu))",
        )
    },
    mutant(
        "a CPU that a higher class takes, later",
        "taken.bpf.h",
        "\tif (next->prio < MAX_RT_PRIO)",
        "\tif (next->prio < 0)",
    ),
    Mutant {
        missed: Some("the bit comes back when the vCPU is queued next"),
        ..mutant(
            "a bit that is lost between two CPUs",
            "vm.bpf.h",
            "\t__sync_fetch_and_or(&mask[bounded(id / 64, MASK_WORDS)], 1ull << (id & 63));",
            "\tu64 *word = &mask[bounded(id / 64, MASK_WORDS)], was = *word;\n\n\tvm_ctx(1);\n\t*word = was | 1ull << (id & 63);",
        )
    },
    Mutant {
        missed: Some("no two vCPUs of a VM go to sleep or wake up in that moment on any of the hosts"),
        ..mutant(
            "a count that is lost between two CPUs",
            "vm.bpf.h",
            "\t__sync_fetch_and_add(&vmc->nr_wanting, wants ? 1 : -1);",
            "\tu32 was = vmc->nr_wanting;\n\n\tvm_ctx(1);\n\tvmc->nr_wanting = was + (wants ? 1 : -1);",
        )
    },
    mutant("a sleeper that still wants to run", "main.bpf.c", "\t\tvcpu_wants(taskc, false);\n", ""),
    Mutant {
        missed: Some(
            "whoever spins is queued a slice later each time: that costs it no time, and others none",
        ),
        ..mutant("a turn that was given up, for ever", "place.bpf.h", "\ttaskc->gave_up = false;\n", "")
    },
    mutant(
        "a class that is never overdue",
        "dispatch.bpf.h",
        "\treturn run_idle_class(cpu_dsq(cpu), idle_patience_ns) ||\n\t       run_idle_class(llc_dsq(llc), idle_patience_ns) ||\n",
        "\treturn\n",
    ),
];
