// SPDX-License-Identifier: GPL-2.0-only
//! From intervals of a recording to the ratio at a ready time, and how sure it is.
//!
//! [`super::model`] says how long vCPUs would wait if all was as it assumes. Reality differs: vCPUs of a VM work at the
//! same time, schedulers leave a CPU idle beside a queue for a moment, or serve short pieces of work better than by even
//! shares. [`Fit`] takes what the recording itself shows of that: at the recorded load, the corrected ready time *is* the
//! measured one. So a host that stands at 5 % is told its own ratio.

use super::model::Mix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Most times that a load is multiplied: beyond this, a recording says nothing.
pub const MOST_TIMES: f64 = 50.0;
/// Resamples of an interval of confidence.
const RESAMPLES: usize = 200;
/// Most times that waits are taken to be longer than the model's, for the low end of the interval.
const MOST_LONGER: f64 = 2.0;
/// Ready time of the model below which it is corrected downwards by a part only: that less was measured may be chance.
const TELLING: f64 = 0.01;
/// Intervals of one resample, at most: what many more would add is not worth the time.
const DRAWN: usize = 120;

/// One VM in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Number of the VM in the recording.
    pub vm: usize,
    /// vCPUs.
    pub vcpus: f64,
    /// CPUs that it ran on.
    pub run: f64,
    /// vCPUs of it that waited, on average.
    pub wait: f64,
    /// Of `run`: spinning for siblings; 0 if it cannot be seen.
    pub spin: f64,
    /// What its vCPUs want.
    pub wants: Mix,
    /// What they would want if nothing was burnt in spins.
    pub spared: Mix,
}

/// An interval of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Length, s.
    pub seconds: f64,
    /// CPUs of the host.
    pub cpus: f64,
    /// CPUs that others than VMs used.
    pub others: f64,
    /// The VMs.
    pub loads: Vec<Load>,
}

/// Sums over the VMs of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Length, s.
    pub seconds: f64,
    /// CPUs of the host.
    pub cpus: f64,
    /// CPUs that others than VMs used.
    pub others: f64,
    /// vCPUs.
    pub vcpus: f64,
    /// vCPUs that waited, on average.
    pub waited: f64,
    /// What they want.
    pub wants: Mix,
    /// What they would want if nothing was burnt.
    pub spared: Mix,
}

impl Sums {
    /// Of an interval in which each VM counts so many times.
    pub fn of(interval: &Interval, counts: impl Fn(usize) -> f64) -> Sums {
        let mut sums = Sums {
            seconds: interval.seconds,
            cpus: interval.cpus,
            others: interval.others,
            ..Sums::default()
        };
        for load in &interval.loads {
            let times = counts(load.vm);
            sums.vcpus += times * load.vcpus;
            sums.waited += times * load.wait;
            sums.wants = sums.wants.and(load.wants.times(times));
            sums.spared = sums.spared.and(load.spared.times(times));
        }
        sums
    }

    /// CPUs for VMs, if there are `times` as many; whoever serves them grows alike.
    fn left(&self, times: f64) -> f64 {
        (self.cpus - times * self.others).max(0.0)
    }
}

/// Mean of a figure of intervals over time and vCPUs; 0 of none.
fn per_vcpu(intervals: &[Sums], of: impl Fn(&Sums) -> f64) -> f64 {
    let whole: f64 = intervals.iter().map(|sums| sums.seconds * sums.vcpus).sum();
    let part: f64 = intervals.iter().map(|sums| sums.seconds * of(sums)).sum();
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Ready time (0 to 1) that the model expects of `times` as many such VMs; `wants` says which of the loads.
fn modelled(intervals: &[Sums], times: f64, wants: impl Fn(&Sums) -> Mix) -> f64 {
    per_vcpu(intervals, |sums| wants(sums).times(times).waiting(sums.left(times)) / times)
}

/// The least ready time that any scheduler could have.
fn least(intervals: &[Sums], times: f64, wants: impl Fn(&Sums) -> Mix) -> f64 {
    per_vcpu(intervals, |sums| wants(sums).times(times).least_waiting(sums.left(times)) / times)
}

/// Mean ready time (0 to 1) that was measured.
pub fn measured(intervals: &[Sums]) -> f64 {
    per_vcpu(intervals, |sums| sums.waited)
}

/// What a recording shows of how reality differs from the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Ready time that was measured, that the model says, and the least that could have been; 0 to 1.
    pub measured: f64,
    /// See `measured`.
    pub modelled: f64,
    /// See `measured`.
    pub least: f64,
    /// Times the load at which the host is full.
    full: f64,
    /// See [`Fit::pessimistic`].
    pessimistic: bool,
}

impl Fit {
    /// Of a recording.
    pub fn of(intervals: &[Sums]) -> Fit {
        let wants = |sums: &Sums| sums.wants;
        let busy = per_vcpu(intervals, |sums| sums.wants.sum() + sums.others);
        let cpus = per_vcpu(intervals, |sums| sums.cpus);
        Fit {
            measured: measured(intervals),
            modelled: modelled(intervals, 1.0, wants),
            least: least(intervals, 1.0, wants),
            full: if busy > 0.0 { (cpus / busy).max(1.0) } else { 1.0 },
            pessimistic: false,
        }
    }

    /// The same, but who waited for longer than the model says waits for as many times as long at any load, up to
    /// `MOST_LONGER`: schedulers that leave CPUs idle beside queues do it most when it is crowded.
    #[must_use]
    pub fn pessimistic(self) -> Fit {
        Fit { pessimistic: true, ..self }
    }

    /// Ready time (0 to 1) to expect of `times` the load, where the model says `modelled` and `least`.
    ///
    /// * Who waited for longer than the model says waits for that much more at any load, in proportion to how busy the
    ///   host is: for a CPU that was taken while another idled.
    /// * Who waited for less than that, but longer than must be, stays in the same place between the two; so much closer
    ///   to the model as that itself is below `TELLING`.
    /// * Who waited for less than must be was measured inexactly; the least is scaled.
    pub fn corrected(&self, times: f64, modelled: f64, least: f64) -> f64 {
        let ready = if self.measured >= self.modelled {
            let more = modelled + (self.measured - self.modelled) * times.min(self.full);
            let longer = (self.measured / self.modelled.max(f64::MIN_POSITIVE)).min(MOST_LONGER);
            if self.pessimistic { more.max(modelled * longer) } else { more }
        } else if self.measured >= self.least {
            let place = (self.measured - self.least) / (self.modelled - self.least);
            let place = 1.0 - (1.0 - place) * (self.modelled / TELLING).min(1.0);
            least + place * (modelled - least)
        } else {
            least * self.measured / self.least
        };
        ready.clamp(0.0, 1.0)
    }

    /// Ready time (0 to 1) to expect of `times` as many VMs as in these intervals.
    pub fn ready(&self, intervals: &[Sums], times: f64, wants: impl Fn(&Sums) -> Mix + Copy) -> f64 {
        self.corrected(times, modelled(intervals, times, wants), least(intervals, times, wants))
    }

    /// How many times the load may be for a ready time (0 to 1); nothing if it may be more than [`MOST_TIMES`].
    pub fn times(&self, intervals: &[Sums], ready: f64, wants: impl Fn(&Sums) -> Mix + Copy) -> Option<f64> {
        let is_within = |times: f64| self.ready(intervals, times, wants) <= ready;
        if is_within(MOST_TIMES) {
            return None;
        }
        // By ratio: loads of one vCPU per host and of fifty times as many need the same precision.
        let (mut low, mut high) = (1e-3, MOST_TIMES);
        while high / low > 1.0005 {
            let middle = f64::sqrt(low * high);
            match is_within(middle) {
                true => low = middle,
                false => high = middle,
            }
        }
        Some(f64::sqrt(low * high))
    }
}

/// vCPUs per CPU at a ready time (0 to 1), by these intervals alone; nothing if the host is too idle to tell.
pub fn ratio(intervals: &[Sums], ready: f64, wants: impl Fn(&Sums) -> Mix + Copy) -> Option<f64> {
    Some(Fit::of(intervals).times(intervals, ready, wants)? * present(intervals))
}

/// vCPUs per CPU that there were, on average over time.
pub fn present(intervals: &[Sums]) -> f64 {
    let sum = |of: fn(&Sums) -> f64| intervals.iter().map(|sums| sums.seconds * of(sums)).sum::<f64>();
    let cpus = sum(|sums| sums.cpus);
    if cpus > 0.0 { sum(|sums| sums.vcpus) / cpus } else { 0.0 }
}

/// 95 % interval of [`ratio`], by a bootstrap over VMs (others like these might have come instead) and over stretches of
/// time (intervals that follow each other are alike). Its low end also takes in how the fit may be wrong
/// ([`Fit::pessimistic`]). The same recording has the same interval. An end that is beyond [`MOST_TIMES`] is nothing.
pub fn interval(intervals: &[Interval], vms: usize, ready: f64) -> (Option<f64>, Option<f64>) {
    let n = intervals.len();
    let drawn = n.min(DRAWN);
    let stretch = (n as f64).sqrt().ceil() as usize;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut ratios, mut lows): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let wants = |sums: &Sums| sums.wants;
    for _ in 0..RESAMPLES {
        let mut counts = vec![0.0; vms];
        (0..vms).for_each(|_| counts[random.random_range(0..vms)] += 1.0);
        let mut sample = Vec::with_capacity(drawn);
        while sample.len() < drawn {
            let begin = random.random_range(0..n);
            let stretch = (begin..begin + stretch).take(drawn - sample.len());
            sample.extend(stretch.map(|at| Sums::of(&intervals[at % n], |vm| counts[vm])));
        }
        let (fit, present) = (Fit::of(&sample), present(&sample));
        let of = |fit: Fit| fit.times(&sample, ready, wants).map_or(f64::INFINITY, |times| times * present);
        ratios.push(of(fit));
        // Where nobody waited for longer, both are one.
        lows.push(if fit.measured > fit.modelled { of(fit.pessimistic()) } else { of(fit) });
    }
    let end = |mut ratios: Vec<f64>, part: f64| {
        ratios.sort_unstable_by(f64::total_cmp);
        let at = ratios[((RESAMPLES - 1) as f64 * part).round() as usize];
        at.is_finite().then_some(at)
    };
    (end(lows, 0.025), end(ratios, 0.975))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::model::demand;
    use proptest::prelude::*;

    /// Intervals of VMs with vCPUs that run and wait so much.
    fn recorded(cpus: f64, intervals: &[Vec<(f64, f64)>]) -> Vec<Interval> {
        let load = |(vm, (run, wait)): (usize, &(f64, f64))| {
            let wants = Mix::of(demand(*run, *wait));
            Load { vm, vcpus: 1.0, run: *run, wait: *wait, spin: 0.0, wants, spared: wants.times(0.5) }
        };
        let interval = |vcpus: &Vec<(f64, f64)>| Interval {
            seconds: 1.0,
            cpus,
            others: 0.0,
            loads: vcpus.iter().enumerate().map(load).collect(),
        };
        intervals.iter().map(interval).collect()
    }

    fn sums(intervals: &[Interval]) -> Vec<Sums> {
        intervals.iter().map(|interval| Sums::of(interval, |_| 1.0)).collect()
    }

    fn wants(sums: &Sums) -> Mix {
        sums.wants
    }

    #[test]
    fn hogs_are_exact() {
        // Six hogs on four CPUs: each runs 2/3 of the time. At 5 %: n = 4 ÷ 0.95.
        let recording =
            sums(&recorded(4.0, &[vec![(2.0 / 3.0, 1.0 / 3.0); 6], vec![(2.0 / 3.0, 1.0 / 3.0); 6]]));
        assert!((present(&recording) - 1.5).abs() < 1e-9);
        let ratio = ratio(&recording, 0.05, wants).unwrap();
        // Between four and five hogs it is linear: 4.24.
        assert!((ratio - 1.0 / 0.95).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn an_idle_host_says_nothing() {
        let idle = recorded(4.0, &vec![vec![(0.0001, 0.0); 4]; 10]);
        assert_eq!(ratio(&sums(&idle), 0.05, wants), None);
        assert_eq!(interval(&idle, 4, 0.05), (None, None));
    }

    #[test]
    fn who_never_waited_stands_until_the_host_is_full() {
        let recording = sums(&recorded(4.0, &vec![vec![(0.1, 0.0); 4]; 10]));
        let told = ratio(&recording, 0.05, wants).unwrap();
        // Forty of a tenth each fill it; nothing is known but that some of them will want to run at once.
        assert!((8.5..9.0).contains(&told), "{told}");
    }

    #[test]
    fn few_vms_that_differ_are_less_sure_than_many_that_do_not() {
        let alike = recorded(4.0, &vec![vec![(0.4, 0.02); 8]; 20]);
        let differ: Vec<(f64, f64)> = (0..8).map(|n| (if n % 4 == 0 { 0.9 } else { 0.05 }, 0.02)).collect();
        let differ = recorded(4.0, &vec![differ; 20]);
        let width = |recording: &[Interval]| {
            let (low, high) = interval(recording, 8, 0.05);
            let point = ratio(&sums(recording), 0.05, wants).unwrap();
            let (low, high) = (low.unwrap(), high.unwrap());
            assert!(low <= point * 1.01 && point <= high * 1.01, "{low} {point} {high}");
            (high - low) / point
        };
        assert!(width(&alike) < 0.02 && width(&differ) > 0.3, "{} {}", width(&alike), width(&differ));
    }

    /// Some load; shares of running and, of the rest, of waiting.
    fn loads() -> impl Strategy<Value = Vec<Vec<(f64, f64)>>> {
        let vcpu = (0.02f64..1.0, 0.0f64..0.4).prop_map(|(run, part)| (run, (1.0 - run) * part));
        prop::collection::vec(prop::collection::vec(vcpu, 6..=6), 2..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_host_that_stands_there_is_told_its_own_ratio(loads in loads(), cpus in 1u32..7) {
            let recording = sums(&recorded(f64::from(cpus), &loads));
            let ready = measured(&recording);
            prop_assume!(ready > TELLING);
            let told = Fit::of(&recording).times(&recording, ready, wants).unwrap_or(MOST_TIMES);
            // Ready times may be flat below that load, and more of it then stands as well.
            prop_assert!(told > 0.999, "{told}");
            for fit in [Fit::of(&recording), Fit::of(&recording).pessimistic()] {
                prop_assert!((fit.ready(&recording, 1.0, wants) - ready).abs() < 1e-9);
            }
        }

        #[test]
        fn the_more_ready_time_is_allowed_the_more_vcpus_stand(loads in loads(), cpus in 1u32..7, a in 0.005f64..0.5, b in 0.005f64..0.5) {
            let recording = sums(&recorded(f64::from(cpus), &loads));
            let at = |ready| ratio(&recording, ready, wants).unwrap_or(f64::INFINITY);
            prop_assert!(at(a.min(b)) <= at(a.max(b)) * 1.001);
        }

        #[test]
        fn the_unit_of_time_and_the_order_of_vms_do_not_matter(loads in loads(), cpus in 1u32..7, unit in 0.01f64..100.0) {
            let recording = recorded(f64::from(cpus), &loads);
            let mut other = recording.clone();
            for interval in &mut other {
                interval.seconds *= unit;
                interval.loads.reverse();
            }
            let (a, b) = (ratio(&sums(&recording), 0.05, wants), ratio(&sums(&other), 0.05, wants));
            prop_assert!(a.is_some() == b.is_some());
            prop_assert!((a.unwrap_or(1.0) / b.unwrap_or(1.0) - 1.0).abs() < 1e-2, "{a:?} {b:?}");
        }

        #[test]
        fn what_is_spared_lets_more_stand(loads in loads(), cpus in 1u32..7) {
            let recording = sums(&recorded(f64::from(cpus), &loads));
            let at = |of: fn(&Sums) -> Mix| ratio(&recording, 0.05, of).unwrap_or(f64::INFINITY);
            prop_assert!(at(|sums| sums.spared) >= at(wants) * 0.999);
        }

        #[test]
        fn twice_the_load_stands_half_as_often(loads in loads(), cpus in 1u32..7) {
            let recording = recorded(f64::from(cpus), &loads);
            let twice: Vec<Interval> = recording.iter().map(|interval| {
                let again = interval.loads.iter().map(|load| Load { vm: load.vm + 6, ..*load });
                Interval { loads: interval.loads.iter().copied().chain(again).collect(), ..interval.clone() }
            }).collect();
            // Uncorrected: the ready time that is measured belongs to one load and not to the other.
            let fit = Fit { measured: 0.0, modelled: 0.0, least: 0.0, full: 1.0, pessimistic: false };
            let at = |recording: &[Interval]| fit.times(&sums(recording), 0.05, wants);
            if let (Some(one), Some(two)) = (at(&recording), at(&twice)) {
                prop_assert!((one / two / 2.0 - 1.0).abs() < 2e-3, "{one} {two}");
            }
        }
    }
}
