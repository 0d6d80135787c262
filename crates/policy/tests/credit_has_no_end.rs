// SPDX-License-Identifier: GPL-2.0-only
//! A defect of [lag-credit-v3]: nobody pays for the credit. On a modelled queue of EEVDF two tasks that yield to each other
//! keep a third one away for as long as they go on. In the lab `rcu_preempt` did not run for five minutes
//! (docs/results/published.md).

use overbook_policy::credit;

const MS: u64 = 1_000_000;
const SLICE: u64 = 2_800_000;
/// All begin here, so that nothing falls below zero.
const START: u64 = 1 << 50;

/// A task of nice 0: virtual time and deadline, ns.
#[derive(Clone, Copy)]
struct Task {
    vtime: u64,
    deadline: u64,
}

impl Task {
    fn new(vtime: u64) -> Task {
        Task { vtime, deadline: vtime + SLICE }
    }
}

fn mean(tasks: &[Task], without: Option<usize>) -> u64 {
    let (mut sum, mut n) = (0, 0);
    for (_, task) in tasks.iter().enumerate().filter(|(nth, _)| Some(*nth) != without) {
        (sum, n) = (sum + task.vtime - START / 2, n + 1);
    }
    sum / n + START / 2
}

/// How long a task waits that wakes up beside two which yield to each other every `spin` ns; none: a second is not enough.
/// Eligible is who is not ahead of the mean; of these the earliest deadline runs, but a target that is eligible goes first
/// (PICK_BUDDY). Who yields forfeits its turn [commit 79104becf42b].
fn wait_beside_yielders(spin: u64, credited: bool) -> Option<u64> {
    let mut tasks = vec![Task::new(START); 2];
    let (mut now, mut buddy) = (0, None);
    let (wakes, gives_up) = (100 * MS, 1100 * MS);
    while now < gives_up {
        if now >= wakes && tasks.len() == 2 {
            tasks.push(Task::new(mean(&tasks, None)));
        }
        let eligible = |nth: &usize| tasks[*nth].vtime <= mean(&tasks, None);
        let by_deadline =
            || (0..tasks.len()).filter(eligible).min_by_key(|nth| tasks[*nth].deadline).unwrap();
        let picked = buddy.filter(eligible).unwrap_or_else(by_deadline);
        if picked == 2 {
            return Some(now - wakes);
        }
        now += spin;
        tasks[picked].vtime += spin;
        if tasks[picked].vtime <= mean(&tasks, None) {
            tasks[picked].vtime = tasks[picked].deadline;
        }
        tasks[picked].deadline = tasks[picked].deadline.max(tasks[picked].vtime + SLICE);
        let target = 1 - picked;
        if credited {
            let others = mean(&tasks, Some(target));
            let shift = tasks[target].vtime - credit(tasks[target].vtime, others, SLICE, tasks.len() as u32);
            tasks[target].vtime -= shift;
            tasks[target].deadline -= shift;
        }
        buddy = Some(target);
    }
    None
}

#[test]
fn two_that_yield_to_each_other_starve_a_third() {
    for spin in [20_000, 100_000, 300_000, MS, 2 * MS] {
        let without = wait_beside_yielders(spin, false).expect("a yield alone starves nobody");
        assert!(without <= 2 * SLICE, "{without} ns without credit, {spin} ns between yields");
        assert_eq!(wait_beside_yielders(spin, true), None, "{spin} ns between yields");
    }
}
