// SPDX-License-Identifier: GPL-2.0-only
//! Faults that were found by reading the scheduler, each as a host that shows it. A fault that is open must show, one that
//! is mended must not: whoever mends one turns its mark over here.

mod groups;
mod kernel;
mod quotas;
mod setup;
mod shares;
mod vcpus;
mod waits;

/// Its name, whether it is open, and the host that shows it.
type Finding = (&'static str, bool, fn() -> Option<String>);

const FINDINGS: [Finding; 80] = [
    ("A1 two clocks in one queue", false, shares::a1),
    ("A1 a bound kthread behind a pool", false, waits::a1_bound_kthread),
    ("A2 packing where each CPU is an LLC", false, kernel::a2),
    ("A3 search of other LLCs' queues", false, kernel::a3),
    ("A4 no balance between LLCs", false, shares::a4),
    ("A5 a move between LLCs costs turns", false, waits::a5),
    ("A6 a VM discovered twice", false, vcpus::a6),
    ("A7 wake-ups pile up on one CPU", false, waits::a7),
    ("A8 a changed weight of a busy group", false, shares::a8),
    ("A9 weights out of bits", false, shares::a9),
    ("A10 a quota while running", false, quotas::a10),
    ("A11 a yield kicks an innocent CPU", false, vcpus::a11),
    ("A12 a double refund", false, shares::a12),
    ("A13 affinity changed before a move", false, kernel::a13),
    ("A14 migration disabled", false, shares::a14),
    ("A15 paravirtual EOI", false, vcpus::a15),
    ("A16 interrupts of devices", false, vcpus::a16),
    ("short spins", false, vcpus::short_spins),
    ("a VM that polls", false, vcpus::who_polls),
    ("short spins in a row", true, vcpus::short_spins_in_a_row),
    ("A17 rotation of the search", false, vcpus::a17),
    ("A19 full tables", false, kernel::a19),
    ("A20 several VMs of a process", false, vcpus::a20),
    ("VMs whose leaders slept when the scheduler was loaded", false, groups::late_load),
    ("a VM that moves to another group", false, groups::vm_moves),
    ("a VM whose group goes", false, groups::a_vms_group_goes),
    ("one vCPU more than CPUs, on two LLCs", false, shares::one_more_than_cpus),
    ("VMs that are bound alike", false, shares::bound_alike),
    ("a quota on a CPU that is not preferred", false, quotas::a_quota_outside),
    ("APICv", false, vcpus::apicv),
    ("a group that begins in a pool that lags", false, shares::newcomer),
    ("ordinary tasks beside VMs of their group", false, shares::tasks_beside_vms),
    ("migration disabled and enabled in a pool that lags", false, shares::migration_off_and_on),
    ("beside a group that is parked", false, quotas::beside_parked),
    ("parked inside an RCU read section", false, quotas::parked_in_a_section),
    ("VMs whose groups lie in each other", false, groups::nested_vms),
    ("beside a group on all LLCs", false, waits::beside_a_wide_group),
    ("vCPUs in a group below the VM's", false, waits::vcpus_in_a_group_below),
    ("a VM that joins another", false, groups::a_vm_that_joins_another),
    ("three VMs of a group", false, shares::three_vms),
    ("whom to preempt on a large host", false, waits::victim_in_a_large_host),
    ("the home of a VM beside one that is bound", false, waits::home_beside_a_bound_vm),
    ("the home of a VM that may not use its first CPU", false, waits::home_without_a_first_cpu),
    ("the home of a VM that may use two CPUs there", false, waits::home_of_two_cpus),
    ("wakers beside who has lost its patience", false, waits::overdue_beside_wakers),
    ("a new task beside a SCHED_IDLE one", false, waits::begun_beside_sched_idle),
    ("nice in a group", false, shares::nice_in_a_group),
    ("a group with cpu.idle", false, groups::idle_groups),
    ("a weight that is raised while all sleep", false, groups::raised_asleep),
    ("a crowd with a small quota", false, quotas::a_crowd),
    ("an impatient crowd with a small quota", false, quotas::an_impatient_crowd),
    ("crowds without patience", false, waits::crowds_without_patience),
    ("a batch vCPU in a crowd without patience", false, waits::batch_in_a_crowd),
    ("changed while it waits", false, waits::changed_while_it_waits),
    ("beside a pool where somebody has always waited for too long", false, waits::beside_a_crowded_pool),
    ("changed from another CPU", false, waits::changed_from_another_cpu),
    ("an ioctl about a vCPU", false, vcpus::an_ioctl),
    ("a dying task whose group goes", false, groups::a_dying_tasks_group_goes),
    ("back from parking", false, quotas::back_from_parking),
    ("a SCHED_IDLE task that is rescued", false, waits::an_idle_task_that_is_rescued),
    ("a VM with threads elsewhere", false, shares::threads_elsewhere),
    ("beside a light VM with CPUs of its own", false, shares::beside_a_light_vm),
    ("woken synchronously beside an idle CPU", false, waits::woken_synchronously),
    ("bound to CPUs that are not preferred", false, waits::bound_outside),
    ("a VM with a real-time vCPU", false, groups::a_real_time_vcpu),
    ("SCHED_IDLE bound to CPUs that are not preferred", false, waits::idle_tasks_bound_outside),
    ("who loses its CPU to a real-time task", false, waits::taken_by_real_time),
    ("a group beside SCHED_IDLE tasks", false, shares::beside_sched_idle),
    ("large groups in a small pool", true, shares::large_groups_in_a_small_pool),
    ("two who come at once after a sleep", false, waits::two_come_at_once),
    ("an LLC that real-time tasks have", false, waits::an_llc_taken_by_real_time),
    ("a VM that moves while its leader sleeps", false, groups::moves_while_its_leader_sleeps),
    ("many who are parked", false, quotas::many_parked),
    ("who slept beside SCHED_IDLE tasks", false, waits::asleep_beside_sched_idle),
    ("behind who may not run here", false, waits::beside_who_may_not_run_here),
    ("a CPU that is preferred again", false, waits::preferred_again),
    ("below a group with a quota", false, quotas::below_a_limited_group),
    ("SCHED_IDLE tasks of a group", false, shares::idle_members),
    ("behind others' sets of CPUs", false, shares::behind_others_sets),
    ("more groups than places", false, groups::more_than_places),
];

#[test]
fn open_findings_show_and_mended_ones_do_not() {
    let mut wrong = Vec::new();
    for (name, open, show) in FINDINGS {
        let shown = show();
        println!("{name}: {}", shown.as_deref().unwrap_or("nothing"));
        match (open, shown) {
            (true, None) => wrong.push(format!("{name} is marked open and does not show")),
            (false, Some(what)) => wrong.push(format!("{name} is marked mended and shows: {what}")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
