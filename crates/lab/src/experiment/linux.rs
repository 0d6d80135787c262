// SPDX-License-Identifier: GPL-2.0-only
//! Linux guests on stock QEMU inside the host, with steal times from KVM, and a program that they run again and again.

mod qemu;

use super::Workload;
use super::bound::Points;
use super::cgroup::{Groups, Member};
use super::shares::{Claim, shares};
use crate::machine::switches::Counts;
use crate::machine::task::{self, TaskCounts, now_ns};
use crate::protocol::{Event, GuestCount, GuestOrder};
use crate::scenario::{Cgroups, LinuxSpec, Scenario, Variant};
use anyhow::Result;
use overbook_report::schema::{KvmCounters, Run, VcpuResult, VmBound, VmResult};
use qemu::{Answered, LinuxVm};
use std::ops::Range;
use std::thread::sleep;

/// The guests of a boot: starting them takes minutes, so all runs share them.
pub(super) struct Fleet<'a> {
    vms: Vec<LinuxVm>,
    spec: &'a LinuxSpec,
    scenario: &'a Scenario,
    entitled_cpus: Vec<f64>,
    /// See [`Scenario::guest_weight`].
    guest_weight: u32,
}

/// What all guests have done at one moment.
struct Sample {
    at: u64,
    counts: Vec<GuestCount>,
    /// Per guest and vCPU.
    tasks: Vec<Vec<TaskCounts>>,
    context_switches: u64,
    /// Of the CPUs that the guests share, together.
    idle_seconds: f64,
}

impl<'a> Fleet<'a> {
    /// Boots the guests, their vCPUs on the CPUs that they share and all else on the others.
    ///
    /// # Errors
    /// A guest does not come up; the message has its last words.
    pub(super) fn start(
        spec: &'a LinuxSpec,
        scenario: &'a Scenario,
        cpus: &[u32],
        say: &mut dyn FnMut(Event) -> Result<()>,
    ) -> Result<Fleet<'a>> {
        let (shared, others) = cpus.split_at(spec.cpus as usize);
        let members: Vec<Member> = spec
            .vcpus()
            .into_iter()
            .enumerate()
            .map(|(nth, vcpus)| Member { name: format!("linux{}", nth + 1), vcpus, weight: None })
            .collect();
        // They go with the machine.
        let groups = Groups::create(scenario.layout.cgroups, &members)?;
        let (mut vms, guest_weight) = (Vec::new(), scenario.guest_weight());
        for (nth, member) in members.iter().enumerate() {
            let vm = LinuxVm::start(&member.name, spec, member.vcpus, others, guest_weight)?;
            for tid in &vm.tids {
                task::bind(*tid, shared)?;
            }
            groups.adopt(nth, vm.pid(), &vm.tids)?;
            vms.push(vm);
        }
        let claim = |member: &Member| {
            let most = f64::from(member.vcpus.min(spec.cpus));
            let weight = match scenario.layout.cgroups {
                Cgroups::Flat => f64::from(member.vcpus),
                Cgroups::PerVm | Cgroups::Nested | Cgroups::PerVcpu => 1.0,
            };
            Claim { weight, most }
        };
        let claims: Vec<Claim> = members.iter().map(claim).collect();
        let entitled_cpus = shares(&claims, f64::from(spec.cpus));
        let mut fleet = Fleet { vms, spec, scenario, entitled_cpus, guest_weight };
        for vm in &mut fleet.vms {
            vm.ready()?;
            say(Event::Log(format!("{} is up", vm.name)))?;
        }
        Ok(fleet)
    }

    /// Places of guests no two of which are alike.
    fn distinct(&self) -> Vec<usize> {
        let vcpus = self.spec.vcpus();
        (0..vcpus.len()).filter(|nth| !vcpus[..*nth].contains(&vcpus[*nth])).collect()
    }

    /// These guests work, and a window is measured.
    fn measure(&mut self, who: Range<usize>, seed: u64) -> Result<Run> {
        let latest = self.scenario.settle_time() / (2 * self.guest_weight);
        let work = |nth| GuestOrder::Work(latest.mul_f64(apart(nth, seed)));
        let window = match each(&mut self.vms[who.clone()], work)? {
            Ok(_) => self.window()?,
            Err(why) => Err(why),
        };
        let rested = order(&mut self.vms[who.clone()], &GuestOrder::Rest)?;
        let (before, after) = match window {
            Ok(samples) => samples,
            Err(why) => return Ok(Run { error: Some(why), ..Run::default() }),
        };
        let mut run = self.difference(&before, &after);
        // A load that failed has stopped: what it did until then is no rate.
        run.error = rested.err().or_else(|| idle(&run.vms[who]));
        Ok(run)
    }

    /// What all have done when they have settled, and a window later.
    fn window(&mut self) -> Result<Answered<(Sample, Sample)>> {
        let _on_time = task::RealTime::begin();
        sleep(self.scenario.settle_time());
        let before = self.sample()?;
        sleep(self.scenario.window());
        let after = self.sample()?;
        Ok(before.and_then(|before| Ok((before, after?))))
    }

    fn sample(&mut self) -> Result<Answered<Sample>> {
        let counts = order(&mut self.vms, &GuestOrder::Count)?;
        let of = |vm: &LinuxVm| vm.tids.iter().map(|tid| task::counts(vm.pid(), *tid)).collect();
        let tasks = self.vms.iter().map(of).collect::<Result<_>>()?;
        let (at, context_switches) = (now_ns(), task::context_switches());
        let idle_seconds = task::idle_seconds(self.spec.cpus)?;
        Ok(counts.map(|counts| Sample { at, counts, tasks, context_switches, idle_seconds }))
    }

    fn difference(&self, before: &Sample, after: &Sample) -> Run {
        let window_ns = (after.at - before.at).max(1);
        let context_switches = after.context_switches - before.context_switches;
        let mut run = Run { window_ns, context_switches, ..Run::default() };
        let idle = (after.idle_seconds - before.idle_seconds) * 1e9 / window_ns as f64;
        run.extra.insert("host: idle CPUs, mean".into(), idle);
        for (nth, vm) in self.vms.iter().enumerate() {
            let (old, new) = (&before.counts[nth], &after.counts[nth]);
            let vcpus: Vec<VcpuResult> = before.tasks[nth]
                .iter()
                .zip(&after.tasks[nth])
                .map(|(old, new)| {
                    let task = *new - *old;
                    // What the host's queues kept from a vCPU is what KVM tells it.
                    VcpuResult { steal_ns: task.queued_ns, ..VcpuResult::from(task) }
                })
                .collect();
            let runs = new.runs - old.runs;
            run.migrations += vcpus.iter().map(|v| v.migrations).sum::<u64>();
            let stolen = new.steal_ticks.saturating_sub(old.steal_ticks) as f64;
            let all = (new.ticks - old.ticks).max(1) as f64;
            run.extra.insert(format!("{}: steal, % of its vCPUs' time", vm.name), stolen / all * 100.0);
            // By the guest's own clock.
            let preferred = ((new.preferred_ns - old.preferred_ns) * u64::from(self.guest_weight)) as f64;
            run.extra.insert(format!("{}: preferred CPUs, mean", vm.name), preferred / window_ns as f64);
            let changes = (new.changes - old.changes) as f64;
            run.extra.insert(format!("{}: changes of their number", vm.name), changes);
            run.vms.push(VmResult {
                name: vm.name.clone(),
                // With its name, as tables sum up VMs of a pattern, and only some may take part.
                pattern: format!("{} in {}", self.spec.command[0], vm.name),
                unit: unit(self.spec.figure.as_deref()),
                work: runs,
                // Runs follow each other at once, so this is what those that ended in the window took.
                rate: (new.done - old.done) * 1e9 / (new.run_ns - old.run_ns).max(1) as f64,
                cpus_used: vcpus.iter().map(|v| v.run_ns).sum::<u64>() as f64 / window_ns as f64,
                entitled_cpus: self.entitled_cpus[nth],
                vcpus,
                kvm: KvmCounters::unseen(),
            });
        }
        run
    }
}

/// What is wrong with a run in which a guest that worked ended none of its runs: it has no rate.
fn idle(worked: &[VmResult]) -> Option<String> {
    let idle = worked.iter().find(|vm| vm.work == 0)?;
    Some(format!("{} ended no run within the window: measure for longer (measure.seconds)", idle.name))
}

/// What a guest's work is counted in: runs, or what stands before the rate that its load prints (`tps =`).
fn unit(figure: Option<&str>) -> String {
    figure.unwrap_or("runs").trim_end_matches([' ', '=', ':']).to_lowercase()
}

impl Workload for Fleet<'_> {
    /// Guests that take part are packed by `overbook guest` or their kernel, all work, and a window is measured.
    fn run_once(
        &mut self,
        variant: &Variant,
        seed: u64,
        attach: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Run> {
        attach()?;
        let packer = match (&variant.guest, &variant.governor) {
            (Some(arguments), _) => Some(GuestOrder::Attach(arguments.clone())),
            (None, Some(parameters)) => Some(GuestOrder::Govern(parameters.clone())),
            (None, None) => None,
        };
        let cooperate = variant.cooperate.unwrap_or(self.spec.guests) as usize;
        let packs = packer.as_ref().map(|packer| order(&mut self.vms[..cooperate], packer)).transpose()?;
        let mut run = match packs {
            Some(Err(why)) => Run { error: Some(why), ..Run::default() },
            _ => {
                let before = Counts::of_vms();
                let mut run = self.measure(0..self.vms.len(), seed)?;
                run.extra.extend(Counts::of_vms().since(&before));
                run
            }
        };
        if packer.is_some() {
            let unpacked = order(&mut self.vms[..cooperate], &GuestOrder::Detach)?;
            run.error = run.error.or(unpacked.err());
        }
        Ok(run)
    }

    fn nr_alone(&self) -> usize {
        self.distinct().len()
    }

    /// What a guest does while the others rest.
    fn run_alone(&mut self, nth: usize, _: &Variant, seed: u64, points: &mut Points) -> Result<()> {
        let nth = self.distinct()[nth];
        points.add_guest(&self.measure(nth..nth + 1, seed)?, nth)
    }

    fn bounds(&self, points: &[Points]) -> Vec<VmBound> {
        let (vcpus, distinct) = (self.spec.vcpus(), self.distinct());
        let of = |nth: usize| {
            let like = distinct.iter().position(|like| vcpus[*like] == vcpus[nth])?;
            points.get(like)?.bound(&self.vms[nth].name, vcpus[nth], self.entitled_cpus[nth])
        };
        (0..self.vms.len()).filter_map(of).collect()
    }
}

/// How much later the nth guest begins than the first, as a part of the longest time. Guests with one and the same load
/// that begin at once stay in step where they are served alike, and so idle at the same moments, which guests elsewhere do
/// not. Multiples of the golden ratio are spread evenly, however many there are.
fn apart(nth: usize, seed: u64) -> f64 {
    /// 2^64 over the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    (nth as u64).wrapping_mul(seed.wrapping_add(1)).wrapping_mul(STEP) as f64 / u64::MAX as f64
}

/// Gives all of these the same order: see [`each`].
fn order(vms: &mut [LinuxVm], order: &GuestOrder) -> Result<Answered<Vec<GuestCount>>> {
    each(vms, |_| order.clone())
}

/// Tells all of these at once, the nth its own order, then waits for all, also where one could not do it: that is the
/// inner error.
///
/// # Errors
/// A guest is gone.
fn each(vms: &mut [LinuxVm], order: impl Fn(usize) -> GuestOrder) -> Result<Answered<Vec<GuestCount>>> {
    for (nth, vm) in vms.iter_mut().enumerate() {
        vm.tell(&order(nth))?;
    }
    let answers: Vec<_> = vms.iter_mut().map(LinuxVm::answer).collect::<Result<_>>()?;
    Ok(answers.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_apart_in_other_ways_each_time() {
        for seed in [0, 1, u64::MAX - 1] {
            assert_eq!(apart(0, seed), 0.0);
            let all = [apart(1, seed), apart(2, seed), apart(1, seed.wrapping_add(1))];
            assert!(all.iter().all(|part| (0.0..1.0).contains(part)), "{all:?}");
            assert!(all[0] != all[1] && all[0] != all[2], "{all:?}");
        }
    }
}
