// SPDX-License-Identifier: GPL-2.0-only
//! A defect of [lag-credit-v3]: nobody pays for the credit. On a modelled queue of EEVDF two tasks that yield to each other
//! keep a third one away for as long as they go on. In the lab `rcu_preempt` did not run for five minutes
//! (docs/results/published.md). Mended, the yielder pays, and who is owed time waits no longer than without a credit.

use overbook_policy::{credit, credit_paid, mul_shr_sat};

const MS: u64 = 1_000_000;
const SLICE: u64 = 2_800_000;
/// A weight of nice 0.
const ONE: u64 = 1024;
/// All begin here, so that nothing falls below zero.
const START: u64 = 1 << 50;
const SPINS: [u64; 5] = [20_000, 100_000, 300_000, MS, 2 * MS];

/// Virtual time and deadline, ns, and a weight.
#[derive(Clone, Copy)]
struct Task {
    vtime: u64,
    deadline: u64,
    weight: u64,
}

impl Task {
    fn new(vtime: u64, weight: u64) -> Task {
        let task = Task { vtime, deadline: vtime, weight };
        Task { deadline: vtime + task.slice(), ..task }
    }

    /// A slice as virtual time, ns.
    fn slice(&self) -> u64 {
        SLICE * ONE / self.weight
    }

    fn move_back(&mut self, shift: u64) {
        self.vtime -= shift;
        self.deadline -= shift;
    }

    fn renew(&mut self) {
        if self.vtime >= self.deadline {
            self.deadline = self.vtime + self.slice();
        }
    }
}

fn mean<'a>(tasks: impl Iterator<Item = &'a Task>) -> u64 {
    let (sum, weights) = tasks.fold((0, 0), |(sum, weights), task| {
        (sum + u128::from(task.vtime) * u128::from(task.weight), weights + u128::from(task.weight))
    });
    (sum / weights) as u64
}

#[derive(Clone, Copy, PartialEq)]
enum Credit {
    None,
    Posted,
    Paid,
}

/// The mended rule: out of the yielder's lag, and no further than its request. It comes before the forfeit.
fn pay(tasks: &mut [Task], yielder: usize, target: usize) {
    let now = mean(tasks.iter());
    let (payer, payee) = (tasks[yielder], tasks[target]);
    if payee.vtime <= now {
        return;
    }
    let lag = now.saturating_sub(payer.vtime).min(payer.deadline.saturating_sub(payer.vtime));
    if lag == 0 {
        return;
    }
    let exchange =
        |vtime, from: Task, to: Task| mul_shr_sat(vtime, from.weight, ONE.ilog2()) * ONE / to.weight;
    let paid = exchange(lag, payer, payee);
    let shift = payee.vtime - credit_paid(payee.vtime, now, payee.slice(), tasks.len() as u32, paid);
    tasks[target].move_back(shift);
    tasks[yielder].vtime += if shift < paid { lag.min(exchange(shift, payee, payer) + 1) } else { lag };
    assert!(tasks[yielder].vtime <= now, "the yielder got into debt");
    let after = mean(tasks.iter());
    assert!(after.abs_diff(now) <= 1, "{now} is {after}: lag came of nothing");
}

/// How long a task waits that wakes up beside some which yield every `spin` ns, each to the one that `target` says; none: a
/// second is not enough. Eligible is who is not ahead of the mean; of these the earliest deadline runs, but a target that is
/// eligible goes first (PICK_BUDDY). Who yields, and is eligible, forfeits its turn [commit 79104becf42b].
fn wait_beside(weights: &[u64], target: impl Fn(usize) -> usize, spin: u64, rule: Credit) -> Option<u64> {
    let mut tasks: Vec<Task> = weights.iter().map(|weight| Task::new(START, *weight)).collect();
    let (mut now, mut buddy) = (0, None);
    let (wakes, gives_up, late) = (100 * MS, 1100 * MS, weights.len());
    while now < gives_up {
        if now >= wakes && tasks.len() == late {
            tasks.push(Task::new(mean(tasks.iter()), ONE));
        }
        let v = mean(tasks.iter());
        let eligible = |nth: &usize| tasks[*nth].vtime <= v;
        let by_deadline =
            || (0..tasks.len()).filter(eligible).min_by_key(|nth| tasks[*nth].deadline).unwrap();
        let picked = buddy.filter(eligible).unwrap_or_else(by_deadline);
        if picked == late {
            return Some(now - wakes);
        }
        now += spin;
        tasks[picked].vtime += spin * ONE / tasks[picked].weight;
        tasks[picked].renew();
        let target = target(picked);
        if rule == Credit::Paid {
            pay(&mut tasks, picked, target);
        }
        if tasks[picked].vtime <= mean(tasks.iter()) {
            tasks[picked].vtime = tasks[picked].deadline;
            tasks[picked].renew();
        }
        if rule == Credit::Posted {
            let vtime = tasks[target].vtime;
            let others = tasks.iter().enumerate().filter(|(nth, _)| *nth != target).map(|(_, task)| task);
            let shift = vtime - credit(vtime, mean(others), tasks[target].slice(), tasks.len() as u32);
            tasks[target].move_back(shift);
        }
        buddy = Some(target);
    }
    None
}

#[test]
fn two_that_yield_to_each_other_starve_a_third() {
    for spin in SPINS {
        let without =
            wait_beside(&[ONE; 2], |nth| 1 - nth, spin, Credit::None).expect("a yield starves nobody");
        assert!(without <= 2 * SLICE, "{without} ns without credit, {spin} ns between yields");
        let posted = wait_beside(&[ONE; 2], |nth| 1 - nth, spin, Credit::Posted);
        assert_eq!(posted, None, "{spin} ns between yields");
    }
}

/// A slice of every other task is what a fair queue may take.
#[test]
fn a_credit_that_is_paid_for_starves_nobody() {
    for (nr, spin) in [2, 4, 8, 16].into_iter().flat_map(|nr| SPINS.map(|spin| (nr, spin))) {
        for weights in [vec![ONE; nr], (0..nr).map(|nth| [ONE / 4, ONE, 3 * ONE][nth % 3]).collect()] {
            let total: u64 = weights.iter().sum();
            let bound = SLICE * (total / ONE).max(nr as u64) + spin;
            let ring = wait_beside(&weights, |nth| (nth + 1) % nr, spin, Credit::Paid);
            let pairs = wait_beside(&weights, |nth| nth ^ 1, spin, Credit::Paid);
            for (how, wait) in [("ring", ring), ("pairs", pairs)] {
                let wait = wait.unwrap_or_else(|| panic!("a {how} of {nr} starves a task, {spin} ns"));
                assert!(wait <= bound, "{how} of {nr}: {wait} ns, {spin} ns between yields, {weights:?}");
            }
        }
    }
}
