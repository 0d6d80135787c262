// SPDX-License-Identifier: GPL-2.0-only
//! How far a host can go: what ratio of vCPUs to CPUs it stands with the load of a recording, at a ready time; which VMs
//! drive it, and what `overbook host` could save.
//!
//! [`model`] is the arithmetic, [`estimate`] how it is fitted to a recording and how sure it is, [`words`] and [`page`]
//! what people see, [`labels`] what schedulers of clusters see. docs/how-far.md says what is assumed, and where that is wrong.

pub mod estimate;
pub mod labels;
pub mod model;
pub mod page;
pub mod words;

use crate::snapshot::{Snapshot, VmCounters, beginnings};
use crate::window::{VmRow, Window};
use estimate::{Fit, Interval, Load, Sums};
use model::{Mix, demand};
use serde::Serialize;
use std::collections::BTreeMap;

/// Shorter ones are no intervals: a file may hold recordings that follow each other.
const SHORTEST_S: f64 = 0.05;
/// Fewer intervals say nothing of load that changes.
const FEWEST: usize = 10;
/// Of all intervals, the busiest part that is looked at by itself.
const BUSIEST: f64 = 0.1;

/// What a recording says.
#[derive(Clone, Debug, Serialize)]
pub struct Far {
    /// Ready time that is asked about, in percent of the time of a vCPU.
    pub ready_percent: f64,
    /// CPUs of the host; the mean, if that changed.
    pub cpus: f64,
    /// CPUs that others than VMs used; nothing if the recording does not say.
    pub others: Option<f64>,
    /// VMs that were seen.
    pub vms: usize,
    /// vCPUs, on average.
    pub vcpus: f64,
    /// Time that was recorded, s, and in how many intervals.
    pub seconds: f64,
    /// See `seconds`.
    pub intervals: usize,
    /// Who scheduled.
    pub scheduler: String,
    /// As it is.
    pub present: Present,
    /// vCPUs per CPU at the ready time; nothing if the host is too idle to tell.
    pub ratio: Option<f64>,
    /// 95 % interval of `ratio`; an end that is nothing is beyond what can be told.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
    /// Whether there is an interval at all: a few intervals say nothing of load that changes.
    pub sure: bool,
    /// The same by the busiest tenth of the time alone; nothing where it cannot be told.
    pub busiest: Option<f64>,
    /// The same if all that is burnt in spins came back to the VMs; nothing where spins are not seen.
    pub spared: Option<f64>,
    /// VMs by their part of what is wanted while others wait, the greatest first.
    pub drivers: Vec<Driver>,
    /// Ready time by ratio.
    pub curve: Vec<Point>,
    /// What happened when.
    #[serde(skip)]
    pub course: Vec<Moment>,
}

/// A host as it was recorded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Present {
    /// vCPUs per CPU.
    pub ratio: f64,
    /// Mean ready time of the vCPUs, in percent, as measured.
    pub ready_percent: f64,
    /// The same by the model alone, before it is fitted.
    pub modelled_percent: f64,
    /// CPUs that VMs would use if they never waited.
    pub wants: f64,
    /// CPUs that they used.
    pub used: f64,
    /// Of these, burnt in spins; nothing where spins are not seen.
    pub burnt: Option<f64>,
}

/// A VM.
#[derive(Clone, Debug, Serialize)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Process.
    pub pid: i32,
    /// vCPUs, while it was there.
    pub vcpus: f64,
    /// CPUs that it would use if it never waited, on average over the recording.
    pub wants: f64,
    /// Its part of what is wanted, in percent, each interval counted by how many vCPUs then wait at `ratio`.
    pub part_percent: f64,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// vCPUs per CPU.
    pub ratio: f64,
    /// Ready time in percent.
    pub ready_percent: f64,
}

/// An interval, for plots.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// s since the first.
    pub at: f64,
    /// CPUs that VMs want, and that all used.
    pub wants: f64,
    /// See `wants`.
    pub used: f64,
    /// Ready time in percent.
    pub ready_percent: f64,
}

/// Intervals of a recording, with who was there.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The intervals.
    pub intervals: Vec<Interval>,
    /// Process and name of VMs, by number.
    pub vms: Vec<(i32, String)>,
    /// Who scheduled for most of the time; intervals under others are left out.
    pub scheduler: String,
    /// Whether spins, and others than VMs, are known in all intervals.
    pub spins: bool,
    /// See `spins`.
    pub others: bool,
}

impl Course {
    /// Of snapshots, which may be of several recordings.
    pub fn of(snapshots: &[Snapshot]) -> Course {
        let begins = beginnings(snapshots);
        let pairs = (1..snapshots.len()).filter(|nth| !begins.contains(nth));
        let windows: Vec<(Window, &Snapshot, &Snapshot)> = pairs
            .map(|nth| (&snapshots[nth - 1], &snapshots[nth]))
            // Of a change in between, nobody knows when it was.
            .filter(|(before, after)| before.scheduler == after.scheduler)
            .map(|(before, after)| (Window::between(before, after), before, after))
            .filter(|(window, ..)| window.seconds >= SHORTEST_S)
            .collect();
        let mut times: BTreeMap<&str, f64> = BTreeMap::new();
        for (window, ..) in &windows {
            *times.entry(&window.scheduler).or_default() += window.seconds;
        }
        let longest = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name.to_string());
        let mut course =
            Course { scheduler: longest.unwrap_or_default(), spins: true, others: true, ..Course::default() };
        for (window, before, after) in
            windows.iter().filter(|(window, ..)| window.scheduler == course.scheduler)
        {
            let ran = window.sum(|vm| vm.run);
            let busy = before.busy_ns.zip(after.busy_ns);
            let busy = busy.map(|(then, now)| now.saturating_sub(then) as f64 / 1e9 / window.seconds);
            course.spins &= window.blind.is_none();
            course.others &= busy.is_some();
            let cpus = f64::from(window.cpus);
            let others = busy.map_or(0.0, |busy| (busy - ran).clamp(0.0, cpus));
            let none = VmCounters::default();
            let loads = window.vms.iter().filter(|vm| !vm.vcpus.is_empty()).map(|vm| {
                let name = &after.vms.get(&vm.pid).unwrap_or(&none).name;
                let known = course.vms.iter().position(|(pid, of)| *pid == vm.pid && of == name);
                let number = known.unwrap_or_else(|| {
                    course.vms.push((vm.pid, name.clone()));
                    course.vms.len() - 1
                });
                load(number, vm)
            });
            let loads = loads.collect();
            course.intervals.push(Interval { seconds: window.seconds, cpus, others, loads });
        }
        course
    }

    /// Sums of the intervals.
    pub fn sums(&self) -> Vec<Sums> {
        self.intervals.iter().map(|interval| Sums::of(interval, |_| 1.0)).collect()
    }
}

/// What a VM did in an interval.
fn load(vm: usize, row: &VmRow) -> Load {
    let mut load =
        Load { vm, vcpus: row.vcpus.len() as f64, run: row.run, wait: row.wait, ..Load::default() };
    for vcpu in &row.vcpus {
        let wants = demand(vcpu.run, vcpu.wait);
        let spin = vcpu.spin.unwrap_or(0.0).min(vcpu.run);
        load.spin += spin;
        load.wants = load.wants.and(Mix::of(wants));
        let kept = if vcpu.run > 0.0 { 1.0 - spin / vcpu.run } else { 1.0 };
        load.spared = load.spared.and(Mix::of(wants * kept));
    }
    load
}

impl Far {
    /// Of a recording, at a ready time in percent.
    ///
    /// # Errors
    /// It says nothing of this; why, in one sentence.
    pub fn of(snapshots: &[Snapshot], ready_percent: f64) -> Result<Far, String> {
        let course = Course::of(snapshots);
        let sums = course.sums();
        if sums.len() < 2 {
            return Err(
                "this takes a recording of at least three snapshots: overbook report --record FILE".into()
            );
        }
        if sums.iter().all(|sums| sums.vcpus == 0.0) {
            return Err("no VM was recorded".into());
        }
        let ready = ready_percent / 100.0;
        let wants = |sums: &Sums| sums.wants;
        let fit = Fit::of(&sums);
        let times = fit.times(&sums, ready, wants);
        let present = estimate::present(&sums);
        let sure = sums.len() >= FEWEST;
        let (low, high) =
            if sure { estimate::interval(&course.intervals, course.vms.len(), ready) } else { (None, None) };
        let burnt = course.spins.then(|| mean(&course.intervals, |interval| sum(interval, |load| load.spin)));
        Ok(Far {
            ready_percent,
            cpus: mean(&course.intervals, |interval| interval.cpus),
            others: course.others.then(|| mean(&course.intervals, |interval| interval.others)),
            vms: course.vms.len(),
            vcpus: mean(&course.intervals, |interval| sum(interval, |load| load.vcpus)),
            seconds: course.intervals.iter().map(|interval| interval.seconds).sum(),
            intervals: course.intervals.len(),
            present: Present {
                ratio: present,
                ready_percent: 100.0 * fit.measured,
                modelled_percent: 100.0 * fit.modelled,
                wants: mean(&course.intervals, |interval| sum(interval, |load| load.wants.sum())),
                used: mean(&course.intervals, |interval| sum(interval, |load| load.run)),
                burnt,
            },
            ratio: times.map(|times| times * present),
            low,
            high,
            sure,
            busiest: sure.then(|| estimate::ratio(&busiest(&sums), ready, wants)).flatten(),
            spared: burnt.and(fit.times(&sums, ready, |sums| sums.spared)).map(|times| times * present),
            drivers: drivers(&course, times.unwrap_or(1.0)),
            curve: curve(&fit, &sums, times.unwrap_or(1.0), present),
            course: moments(&course),
            scheduler: course.scheduler,
        })
    }
}

impl Far {
    /// Ready time in percent to expect at a ratio, by the curve; nothing beyond its ends.
    pub fn ready_at(&self, ratio: f64) -> Option<f64> {
        let pair = self.curve.windows(2).find(|pair| pair[0].ratio <= ratio && ratio <= pair[1].ratio)?;
        let part = (ratio - pair[0].ratio) / (pair[1].ratio - pair[0].ratio).max(f64::MIN_POSITIVE);
        Some(pair[0].ready_percent + part * (pair[1].ready_percent - pair[0].ready_percent))
    }
}

fn sum(interval: &Interval, of: impl Fn(&Load) -> f64) -> f64 {
    interval.loads.iter().map(of).fold(0.0, |sum, x| sum + x)
}

/// Mean over time.
fn mean(intervals: &[Interval], of: impl Fn(&Interval) -> f64) -> f64 {
    let seconds: f64 = intervals.iter().map(|interval| interval.seconds).sum();
    let part: f64 = intervals.iter().map(|interval| interval.seconds * of(interval)).sum();
    if seconds > 0.0 { part / seconds } else { 0.0 }
}

/// The busiest intervals, by what is wanted of each CPU.
fn busiest(sums: &[Sums]) -> Vec<Sums> {
    let mut sorted = sums.to_vec();
    let wanted = |sums: &Sums| (sums.wants.sum() + sums.others) / sums.cpus.max(1.0);
    sorted.sort_by(|a, b| wanted(b).total_cmp(&wanted(a)));
    sorted.truncate(((sums.len() as f64 * BUSIEST).ceil() as usize).max(1));
    sorted
}

/// Each VM's part of what is wanted. Intervals count by how many vCPUs wait in them at so many times the load; where nobody
/// does, by their length.
fn drivers(course: &Course, times: f64) -> Vec<Driver> {
    let of = |interval: &Interval| {
        let sums = Sums::of(interval, |_| 1.0);
        sums.wants.times(times).waiting((sums.cpus - times * sums.others).max(0.0))
    };
    let waits = course.intervals.iter().any(|interval| of(interval) > 1e-9);
    let mut drivers: Vec<Driver> = course
        .vms
        .iter()
        .map(|(pid, name)| Driver {
            name: name.clone(),
            pid: *pid,
            vcpus: 0.0,
            wants: 0.0,
            part_percent: 0.0,
        })
        .collect();
    let (mut all, mut seconds) = (0.0, 0.0);
    let mut there = vec![0.0; drivers.len()];
    for interval in &course.intervals {
        let wanted = sum(interval, |load| load.wants.sum());
        let counts = interval.seconds * if waits { of(interval) } else { 1.0 };
        seconds += interval.seconds;
        all += if wanted > 0.0 { counts } else { 0.0 };
        for load in &interval.loads {
            let driver = &mut drivers[load.vm];
            driver.vcpus += interval.seconds * load.vcpus;
            there[load.vm] += interval.seconds;
            driver.wants += interval.seconds * load.wants.sum();
            driver.part_percent +=
                if wanted > 0.0 { 100.0 * counts * load.wants.sum() / wanted } else { 0.0 };
        }
    }
    for (driver, there) in drivers.iter_mut().zip(there) {
        driver.vcpus /= f64::max(there, f64::MIN_POSITIVE);
        driver.wants /= seconds;
        driver.part_percent /= f64::max(all, f64::MIN_POSITIVE);
    }
    drivers.sort_by(|a, b| b.part_percent.total_cmp(&a.part_percent).then(a.pid.cmp(&b.pid)));
    drivers
}

/// Ready times around what there is and what is asked about.
fn curve(fit: &Fit, sums: &[Sums], times: f64, present: f64) -> Vec<Point> {
    const POINTS: usize = 48;
    let last = 1.5 * f64::max(times, 1.0);
    let point = |nth: usize| {
        let times = last * (nth + 1) as f64 / POINTS as f64;
        let ready = fit.ready(sums, times, |sums| sums.wants);
        Point { ratio: times * present, ready_percent: 100.0 * ready }
    };
    (0..POINTS).map(point).collect()
}

fn moments(course: &Course) -> Vec<Moment> {
    let mut at = 0.0;
    let moment = |interval: &Interval| {
        let vcpus = sum(interval, |load| load.vcpus).max(1.0);
        at += interval.seconds;
        Moment {
            at: at - interval.seconds / 2.0,
            wants: sum(interval, |load| load.wants.sum()) + interval.others,
            used: sum(interval, |load| load.run) + interval.others,
            ready_percent: 100.0 * sum(interval, |load| load.wait) / vcpus,
        }
    };
    course.intervals.iter().map(moment).collect()
}

/// What every vCPU wants in an interval, to be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// CPUs of the host.
    pub cpus: u32,
    /// CPUs that others than VMs used.
    pub others: f64,
    /// By VM: the share of the time (0 to 1) that each vCPU would run if it never waited.
    pub vms: Vec<Vec<f64>>,
}

/// Intervals that stand for a recording: `many` at the most, each the middle of as many parts of all intervals in the
/// order of what is wanted.
pub fn representatives(snapshots: &[Snapshot], many: usize) -> Vec<Wanted> {
    let course = Course::of(snapshots);
    let begins = beginnings(snapshots);
    let pairs = (1..snapshots.len()).filter(|nth| !begins.contains(nth));
    let windows = pairs.map(|nth| (&snapshots[nth - 1], &snapshots[nth]));
    let windows = windows.filter(|(a, b)| a.scheduler == course.scheduler && b.scheduler == course.scheduler);
    let windows = windows.map(|(a, b)| Window::between(a, b)).filter(|window| window.seconds >= SHORTEST_S);
    let wanted = |(window, interval): (Window, &Interval)| Wanted {
        cpus: window.cpus,
        others: interval.others,
        vms: {
            let vms = window.vms.iter().filter(|vm| !vm.vcpus.is_empty());
            vms.map(|vm| vm.vcpus.iter().map(|vcpu| demand(vcpu.run, vcpu.wait)).collect()).collect()
        },
    };
    let mut all: Vec<Wanted> = windows.zip(&course.intervals).map(wanted).collect();
    all.retain(|wanted| !wanted.vms.is_empty());
    let sum = |wanted: &Wanted| wanted.vms.iter().flatten().sum::<f64>() + wanted.others;
    all.sort_by(|a, b| sum(a).total_cmp(&sum(b)));
    let n = all.len();
    let many = many.min(n);
    (0..many).map(|i| all[((i as f64 + 0.5) * n as f64 / many as f64) as usize].clone()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::snapshot::{Sight, VcpuCounters};

    /// A recording of VMs that run, wait and spin so much (CPUs per vCPU), for some seconds; others use `others` CPUs.
    pub fn recorded(
        cpus: u32,
        seconds: u64,
        others: f64,
        vms: &[(&str, u32, f64, f64, f64)],
    ) -> Vec<Snapshot> {
        let snapshot = |n: u64| {
            let ns = |cpus: f64| (n as f64 * cpus * 1e9) as u64;
            let vm = |(i, (name, vcpus, run, wait, spin)): (usize, &(&str, u32, f64, f64, f64))| {
                let vcpu = |id: u32| {
                    let tid = 100 * (i as i32 + 1) + id as i32;
                    let (spin_ns, spins) = (Some(ns(*spin)), Some(n));
                    (id, VcpuCounters { tid, run_ns: ns(*run), wait_ns: ns(*wait), spin_ns, spins })
                };
                let vcpus = (0..*vcpus).map(vcpu).collect();
                (i as i32 + 1, VmCounters { name: name.to_string(), vcpus, ..VmCounters::default() })
            };
            let ran: f64 = vms.iter().map(|(_, vcpus, run, ..)| f64::from(*vcpus) * run).sum();
            Snapshot {
                at_ns: n * 1_000_000_000,
                cpus,
                scheduler: "EEVDF".into(),
                busy_ns: Some(ns(ran + others)),
                vms: vms.iter().enumerate().map(vm).collect(),
                sight: Sight::Probes,
                ..Snapshot::default()
            }
        };
        (0..=seconds).map(snapshot).collect()
    }

    #[test]
    fn a_recording_says_how_far_and_who_drives_it() {
        let vms = [("db", 4, 0.6, 0.01, 0.1), ("web", 4, 0.2, 0.005, 0.0), ("idle", 8, 0.0, 0.0, 0.0)];
        let far = Far::of(&recorded(4, 30, 0.2, &vms), 5.0).unwrap();
        assert_eq!((far.vms, far.vcpus, far.intervals), (3, 16.0, 30));
        assert!((far.present.ratio - 4.0).abs() < 1e-9 && (far.others.unwrap() - 0.2).abs() < 1e-6);
        // Sixteen vCPUs, of which eight wait for 0.06 in all.
        assert!((far.present.ready_percent - 0.375).abs() < 1e-6, "{:?}", far.present);
        let ratio = far.ratio.unwrap();
        assert!(ratio > 4.0 && ratio < 8.0, "{ratio}");
        assert!(far.spared.unwrap() > ratio);
        assert!((far.present.burnt.unwrap() - 0.4).abs() < 1e-6);
        let parts: Vec<(&str, f64)> = far.drivers.iter().map(|d| (d.name.as_str(), d.part_percent)).collect();
        assert_eq!(parts.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["db", "web", "idle"]);
        assert!((parts.iter().map(|(_, part)| part).sum::<f64>() - 100.0).abs() < 1e-6);
        assert!((parts[0].1 - 75.1).abs() < 0.5 && parts[2].1 == 0.0, "{parts:?}");
        assert!((far.ready_at(ratio).unwrap() - 5.0).abs() < 0.1 && far.ready_at(100.0).is_none());
        // What is asked about lies on the curve.
        let beyond = far.curve.iter().find(|point| point.ready_percent > 5.0).unwrap();
        assert!(beyond.ratio >= ratio && beyond.ratio < ratio * 1.2, "{ratio} {:?}", far.curve);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let vms = [("a", 4, 0.5, 0.1, 0.0)];
        let mut recording = recorded(4, 12, 0.0, &vms);
        for snapshot in &mut recording {
            snapshot.busy_ns = None;
            snapshot.sight = Sight::Blind("no root".into());
        }
        let far = Far::of(&recording, 5.0).unwrap();
        assert_eq!((far.others, far.spared, far.present.burnt), (None, None, None));
        let few = Far::of(&recorded(4, 3, 0.0, &vms), 5.0).unwrap();
        assert!(!few.sure && few.low.is_none() && few.ratio.is_some());
        assert!(Far::of(&recorded(4, 1, 0.0, &vms), 5.0).unwrap_err().contains("--record"));
        assert!(Far::of(&recorded(4, 5, 0.0, &[]), 5.0).unwrap_err().contains("no VM"));
        let idle = Far::of(&recorded(4, 12, 0.0, &[("a", 4, 0.0001, 0.0, 0.0)]), 5.0).unwrap();
        assert_eq!(idle.ratio, None);
    }

    #[test]
    fn few_intervals_stand_for_a_recording() {
        let vms = [("a", 2, 0.5, 0.5, 0.0), ("b", 1, 0.2, 0.0, 0.0)];
        let few = representatives(&recorded(4, 30, 0.25, &vms), 5);
        assert_eq!(few.len(), 5);
        assert_eq!((few[0].cpus, few[0].vms[0].len(), few[0].vms[1].len()), (4, 2, 1));
        assert!((few[0].vms[0][0] - 1.0).abs() < 1e-6 && (few[0].vms[1][0] - 0.2).abs() < 1e-6);
        assert!((few[0].others - 0.25).abs() < 1e-6);
        assert_eq!(representatives(&recorded(4, 2, 0.0, &vms), 5).len(), 2);
        assert!(representatives(&[], 5).is_empty());
    }

    #[test]
    fn who_schedules_is_told_apart_and_recordings_that_follow_each_other_are_one() {
        let vms = [("a", 4, 0.5, 0.1, 0.0)];
        let mut recording = recorded(4, 20, 0.0, &vms);
        recording[15..].iter_mut().for_each(|snapshot| snapshot.scheduler = "overbook".into());
        let far = Far::of(&recording, 5.0).unwrap();
        assert_eq!((far.scheduler.as_str(), far.intervals), ("EEVDF", 14));
        let twice = [recorded(4, 20, 0.0, &vms), recorded(4, 20, 0.0, &vms)].concat();
        let far = Far::of(&twice, 5.0).unwrap();
        assert_eq!((far.intervals, far.vms), (40, 1));
    }
}
