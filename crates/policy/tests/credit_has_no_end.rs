// SPDX-License-Identifier: GPL-2.0-only
//! A defect of [lag-credit-v3]: nobody pays for the credit. On a modelled queue of EEVDF two tasks that yield to each other
//! keep a third one away for as long as they go on. In the lab `rcu_preempt` did not run for five minutes
//! (docs/results/published.md). And the mended rule, where the yielder pays: the third one runs.

use overbook_policy::{credit, credit_paid};

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

    fn move_back(&mut self, shift: u64) {
        self.vtime -= shift;
        self.deadline -= shift;
    }
}

fn mean(tasks: &[Task], without: Option<usize>) -> u64 {
    let (mut sum, mut n) = (0, 0);
    for (_, task) in tasks.iter().enumerate().filter(|(nth, _)| Some(*nth) != without) {
        (sum, n) = (sum + task.vtime - START / 2, n + 1);
    }
    sum / n + START / 2
}

/// The mended rule, for two of one weight. It comes before the forfeit.
fn pay(tasks: &mut [Task], yielder: usize, target: usize) {
    let now = mean(tasks, None);
    if tasks[yielder].vtime > now {
        return;
    }
    let forfeit = tasks[yielder].deadline.saturating_sub(tasks[yielder].vtime);
    let shift =
        tasks[target].vtime - credit_paid(tasks[target].vtime, now, SLICE, tasks.len() as u32, forfeit);
    tasks[target].move_back(shift);
    tasks[yielder].vtime += shift;
}

#[derive(Clone, Copy, PartialEq)]
enum Credit {
    None,
    Posted,
    Paid,
}

/// How long a task waits that wakes up beside two which yield to each other every `spin` ns; none: a second is not enough.
/// Eligible is who is not ahead of the mean; of these the earliest deadline runs, but a target that is eligible goes first
/// (PICK_BUDDY). Who yields forfeits its turn [commit 79104becf42b].
fn wait_beside_yielders(spin: u64, rule: Credit) -> Option<u64> {
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
        let target = 1 - picked;
        if rule == Credit::Paid {
            pay(&mut tasks, picked, target);
        }
        if tasks[picked].vtime <= mean(&tasks, None) {
            tasks[picked].vtime = tasks[picked].deadline;
        }
        tasks[picked].deadline = tasks[picked].deadline.max(tasks[picked].vtime + SLICE);
        if rule == Credit::Posted {
            let others = mean(&tasks, Some(target));
            let vtime = tasks[target].vtime;
            let shift = vtime - credit(vtime, others, SLICE, tasks.len() as u32);
            tasks[target].move_back(shift);
        }
        buddy = Some(target);
    }
    None
}

#[test]
fn two_that_yield_to_each_other_starve_a_third() {
    for spin in [20_000, 100_000, 300_000, MS, 2 * MS] {
        let without = wait_beside_yielders(spin, Credit::None).expect("a yield alone starves nobody");
        assert!(without <= 2 * SLICE, "{without} ns without credit, {spin} ns between yields");
        assert_eq!(wait_beside_yielders(spin, Credit::Posted), None, "{spin} ns between yields");
    }
}

#[test]
fn a_credit_that_is_paid_for_starves_nobody() {
    for spin in [20_000, 100_000, 300_000, MS, 2 * MS] {
        let wait = wait_beside_yielders(spin, Credit::Paid).expect("a paid credit starves nobody");
        println!("{spin}: {wait}");
        assert!(wait <= 4 * SLICE, "{wait} ns, {spin} ns between yields");
    }
}
