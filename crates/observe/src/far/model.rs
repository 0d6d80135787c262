// SPDX-License-Identifier: GPL-2.0-only
//! How long vCPUs wait for CPUs, by how much they want to run: the arithmetic of "how far can this host go".
//!
//! # What a vCPU wants
//!
//! Of a vCPU that ran for a share r of some time and waited for a share w, [`demand`] is the share of the time that it
//! would run if it never had to wait: r ÷ (1 − w). It sleeps between two pieces of work, however long the work is delayed,
//! so only the time in which it did not wait counts. A vCPU that never sleeps has r + w = 1 and wants 1; one that never
//! waited wants what it ran; always r ≤ demand ≤ r + w.
//!
//! # How long vCPUs wait
//!
//! [`waiting`] is the mean number of vCPUs that wait, of n that are alike: each wants to run for a share d of the time, by
//! itself and independent of the others, and all that want to run share c CPUs evenly. It is the textbook's closed queue,
//! "machine repair" (n machines, c repairers). States are the number k of vCPUs that want to run; with a = d ÷ (1 − d),
//!
//! ```text
//! weight(0) = 1,   weight(k) = weight(k − 1) × (n − k + 1) × a ÷ min(k, c)
//! waiting   = Σ weight(k) × max(k − c, 0) ÷ Σ weight(k)
//! ```
//!
//! With even shares the result does not depend on how the lengths of work and sleep are distributed, but on their means
//! (insensitivity: Baskett, Chandy, Muntz and Palacios 1975; Kelly 1979), which is why no burst is recorded.
//!
//! # Example
//!
//! Two CPUs, three vCPUs that each want to run half of the time: a = 1, and the weights of 0 to 3 are 1, 3 × 1 ÷ 1 = 3,
//! 3 × 2 × 1 ÷ 2 = 3 and 3 × 1 × 1 ÷ 2 = 1.5, 8.5 in all. One of them waits in state 3 only: 1 × 1.5 ÷ 8.5 = 0.176. So a
//! vCPU waits for 0.176 ÷ 3 = 5.9 % of the time: its ready time. If they never slept (d = 1), one of three would always
//! wait: 33 %.
//!
//! # vCPUs that differ
//!
//! [`Mix`] stands for vCPUs of different demands d₁, d₂, … by some that are alike. What those are depends on how crowded
//! it is: who always wants to run counts for more where others must wait. Let z ≥ 1 be how much longer work takes; then a
//! vCPU wants to run for d′ = d × z ÷ (1 − d + d × z) of the time, and z = Σd′ ÷ c if that is more than 1. The alike ones
//! have the mean and the variance of how many then want to run: (Σd′)² ÷ Σd′² vCPUs that want Σd′² ÷ Σd′ each, which is
//! taken back by z. Exact if all are alike, or never sleep, or always do. Else a property test compares it with the closed
//! queue of vCPUs that differ: off by less than 0.03 of ready time on hosts of up to 11 vCPUs, 0.01 from 20 on.

/// Share of the time (0 to 1) that a vCPU would run if it never waited. `run` and `wait` are shares of one time.
pub fn demand(run: f64, wait: f64) -> f64 {
    let awake_or_asleep = 1.0 - wait;
    if awake_or_asleep <= run { f64::from(run > 0.0) } else { (run / awake_or_asleep).max(0.0) }
}

/// Mean number of vCPUs that wait, of `vcpus` that want a share `wants` (0 to 1) of the time each, on `cpus` CPUs, which
/// may be a broken number as `vcpus` may. Between whole numbers of vCPUs it is linear.
pub fn waiting(vcpus: f64, wants: f64, cpus: f64) -> f64 {
    // Who always wants to run leaves no doubt; nor does the division.
    waiting_of(vcpus, if wants >= 1.0 - 1e-12 { f64::INFINITY } else { wants / (1.0 - wants) }, cpus)
}

/// The same, by the time that each runs for a time that it sleeps.
fn waiting_of(vcpus: f64, a: f64, cpus: f64) -> f64 {
    let below = vcpus.floor();
    let part = vcpus - below;
    let low = waiting_of_whole(below as u64, a, cpus);
    if part == 0.0 { low } else { low * (1.0 - part) + waiting_of_whole(below as u64 + 1, a, cpus) * part }
}

fn waiting_of_whole(vcpus: u64, a: f64, cpus: f64) -> f64 {
    let n = vcpus as f64;
    if a <= 0.0 || n <= cpus {
        return 0.0;
    }
    if cpus <= 0.0 {
        return n;
    }
    if a.is_infinite() {
        return n - cpus;
    }
    let factor = |k: u64| (n - k as f64 + 1.0) * a / (k as f64).min(cpus);
    // Weights have one top, as factors fall: from there it goes down on both sides, until there is nothing.
    let top = partition(vcpus, |k| factor(k) >= 1.0);
    let (mut all, mut queued) = (0.0, 0.0);
    let mut add = |k: u64, weight: f64| {
        all += weight;
        queued += weight * (k as f64 - cpus).max(0.0);
        weight > 1e-18
    };
    add(top, 1.0);
    let mut weight = 1.0;
    for k in top + 1..=vcpus {
        weight *= factor(k);
        if !add(k, weight) {
            break;
        }
    }
    weight = 1.0;
    for k in (1..=top).rev() {
        weight /= factor(k);
        if !add(k - 1, weight) {
            break;
        }
    }
    queued / all
}

/// The largest number of 1 to `most` that something is true of which is true up to some number and false beyond; 0 if of
/// none.
fn partition(most: u64, is_true: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if is_true(middle) { low = middle } else { high = middle }
    }
    low
}

/// Upper ends of the classes of demands; the last is of those that never sleep.
const CLASSES: [f64; 12] = [0.01, 0.03, 0.07, 0.13, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.99, f64::INFINITY];

/// vCPUs that differ, by classes of their demands. Within a class all count as if they wanted its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// vCPUs of each class, and the sum of their demands.
    classes: [(f64, f64); CLASSES.len()],
}

impl Mix {
    /// One vCPU of a demand.
    pub fn of(demand: f64) -> Mix {
        let mut mix = Mix::default();
        let class = CLASSES.iter().position(|end| demand < *end).unwrap_or(CLASSES.len() - 1);
        mix.classes[class] = (1.0, demand);
        mix
    }

    /// `times` as many.
    #[must_use]
    pub fn times(mut self, times: f64) -> Mix {
        for (vcpus, sum) in &mut self.classes {
            (*vcpus, *sum) = (*vcpus * times, *sum * times);
        }
        self
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Mix) -> Mix {
        for ((vcpus, sum), (more, of_more)) in self.classes.iter_mut().zip(other.classes) {
            (*vcpus, *sum) = (*vcpus + more, *sum + of_more);
        }
        self
    }

    /// CPUs that are wanted.
    pub fn sum(self) -> f64 {
        self.classes.iter().map(|(_, sum)| sum).sum()
    }

    /// How many want to run on average if work takes z times as long, and the sum of the squares of each one's part.
    fn awake(self, z: f64) -> (f64, f64) {
        let of = |(vcpus, sum): (f64, f64)| {
            let demand = sum / vcpus;
            let part = demand * z / (1.0 - demand + demand * z);
            (vcpus * part, vcpus * part * part)
        };
        let parts = self.classes.into_iter().filter(|(vcpus, _)| *vcpus > 0.0).map(of);
        parts.fold((0.0, 0.0), |(mean, square), (a, b)| (mean + a, square + b))
    }

    /// How much longer work takes on `cpus` CPUs, at least 1.
    fn longer(self, cpus: f64) -> f64 {
        let all = self.awake(1.0).0;
        if all <= cpus || cpus <= 0.0 {
            return 1.0;
        }
        // Each doubling of z makes less than twice as many want to run.
        let vcpus: f64 = self.classes.iter().map(|(vcpus, _)| vcpus).sum();
        let (mut low, mut high) = (1.0, (vcpus / cpus).max(1.0));
        while high > low * (1.0 + 1e-12) {
            let middle = 0.5 * (low + high);
            if middle <= low || middle >= high {
                break;
            }
            match self.awake(middle).0 > middle * cpus {
                true => low = middle,
                false => high = middle,
            }
        }
        0.5 * (low + high)
    }

    /// Mean number of vCPUs that wait on `cpus` CPUs: see the head of this file.
    pub fn waiting(self, cpus: f64) -> f64 {
        let z = self.longer(cpus);
        let (mean, square) = self.awake(z);
        if square <= 0.0 {
            return 0.0;
        }
        let wants = square / mean;
        let a = if wants >= 1.0 - 1e-12 { f64::INFINITY } else { wants / (1.0 - wants) / z };
        waiting_of(mean * mean / square, a, cpus)
    }

    /// What waits on `cpus` CPUs if vCPUs take turns as evenly as can be: only what is wanted beyond the CPUs.
    pub fn least_waiting(self, cpus: f64) -> f64 {
        if cpus <= 0.0 { self.awake(1.0).0 } else { cpus * (self.longer(cpus) - 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn the_example_of_the_documentation_holds() {
        assert!(near(waiting(3.0, 0.5, 2.0), 1.5 / 8.5));
        assert!(near(waiting(3.0, 1.0, 2.0), 1.0));
    }

    #[test]
    fn a_single_cpu_is_erlangs() {
        // One CPU, two vCPUs of demand 1/2: weights 1, 2, 2; one waits in the last.
        assert!(near(waiting(2.0, 0.5, 1.0), 0.4));
        // Nobody waits where there is a CPU for each, and all do where there is none.
        assert_eq!((waiting(4.0, 0.9, 4.0), waiting(4.0, 0.9, 0.0)), (0.0, 4.0));
        assert_eq!((waiting(0.0, 0.5, 0.5), Mix::default().waiting(1.0)), (0.0, 0.0));
    }

    #[test]
    fn large_hosts_neither_overflow_nor_wait_before_they_are_full() {
        assert!(waiting(8000.0, 0.1, 1024.0) < 1e-3, "{}", waiting(8000.0, 0.1, 1024.0));
        let full = waiting(20_000.0, 0.1, 1024.0);
        let least = Mix::of(0.1).times(20_000.0).least_waiting(1024.0);
        assert!(near(full, least), "{full} {least}");
    }

    #[test]
    fn idle_vcpus_change_nothing_and_hogs_are_exact() {
        let hogs = Mix::of(1.0).times(6.0);
        let all = hogs.and(Mix::of(0.0).times(50.0));
        assert!(near(all.waiting(4.0), 2.0) && near(hogs.waiting(4.0), hogs.least_waiting(4.0)));
    }

    /// The closed queue for vCPUs of different demands: by how many want to run, from the distribution without queues.
    fn exact(demands: &[f64], cpus: f64) -> f64 {
        let mut parts = vec![1.0];
        for d in demands {
            let mut next = vec![0.0; parts.len() + 1];
            for (k, part) in parts.iter().enumerate() {
                next[k] += part * (1.0 - d);
                next[k + 1] += part * d;
            }
            parts = next;
        }
        let (mut all, mut queued, mut growth) = (0.0, 0.0, 1.0);
        for (k, part) in parts.iter().enumerate() {
            let k = k as f64;
            growth *= if k > 0.0 { k / k.min(cpus) } else { 1.0 };
            all += part * growth;
            queued += part * growth * (k - cpus).max(0.0);
        }
        queued / all
    }

    fn error(demands: &[f64], cpus: u32) -> f64 {
        let mix = demands.iter().map(|d| Mix::of(*d)).fold(Mix::default(), Mix::and);
        (mix.waiting(f64::from(cpus)) - exact(demands, f64::from(cpus))).abs() / demands.len() as f64
    }

    fn demands() -> impl Strategy<Value = f64> {
        prop_oneof![0.02f64..1.0, Just(0.02), Just(0.05), Just(0.3), Just(0.99)]
    }

    proptest! {
        #[test]
        fn demand_lies_between_what_ran_and_what_was_wanted(run in 0.0f64..=1.0, part in 0.0f64..=1.0) {
            let wait = (1.0 - run) * part;
            let d = demand(run, wait);
            prop_assert!(d >= run - 1e-12 && d <= run + wait + 1e-12 && d <= 1.0, "{run} {wait} {d}");
            prop_assert!(demand(run, 0.0) == run && (run == 0.0 || near(demand(run, 1.0 - run), 1.0)));
        }

        #[test]
        fn more_vcpus_or_fewer_cpus_wait_longer(
            n in 1.0f64..300.0, more in 0.0f64..50.0, wants in 0.01f64..=1.0, cpus in 0.5f64..100.0, fewer in 0.0f64..20.0,
        ) {
            let ready = waiting(n, wants, cpus) / n;
            prop_assert!((0.0..=1.0).contains(&ready));
            prop_assert!(waiting(n + more, wants, cpus) / (n + more) >= ready - 1e-9);
            prop_assert!(waiting(n, wants, (cpus - fewer).max(0.0)) / n >= ready - 1e-9);
            prop_assert!(waiting(n, (wants + 0.1).min(1.0), cpus) / n >= ready - 1e-9);
        }

        #[test]
        fn never_less_waits_than_must(n in 1.0f64..300.0, wants in 0.01f64..=1.0, cpus in 0.5f64..100.0) {
            let mix = Mix::of(wants).times(n);
            prop_assert!(mix.waiting(cpus) >= mix.least_waiting(cpus) - 1e-6, "{} {}", mix.waiting(cpus), mix.least_waiting(cpus));
        }

        #[test]
        fn alike_ones_stand_for_those_that_differ(few in prop::collection::vec(demands(), 3..=11), cpus in 1u32..5) {
            prop_assert!(error(&few, cpus) < 0.03, "{}", error(&few, cpus));
        }

        #[test]
        fn the_more_there_are_the_better(many in prop::collection::vec(demands(), 20..=60), cpus in 4u32..17) {
            prop_assert!(error(&many, cpus) < 0.01, "{}", error(&many, cpus));
        }
    }
}
