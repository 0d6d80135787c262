// SPDX-License-Identifier: GPL-2.0-only
//! Micro-guests: VMs of our own, started anew for every run.

mod sample;
mod wakeups;

use super::bound::Points;
use super::shares::{Claim, shares};
use super::{Host, Workload, cgroup};
use crate::machine::instrument::Clock;
use crate::machine::switches::Counts;
use crate::machine::task::{self, now_ns};
use crate::scenario::{Cgroups, Placement, Scenario, Variant, Vm};
use anyhow::{Context, Result, bail};
use overbook_report::schema::{Run, VmBound};
use overbook_vmm::{GuestMemory, Load, Pattern, VmConfig, VmProcess};
use sample::Sample;
use std::thread::sleep;
use std::time::Duration;

/// One VM of a run.
struct Guest<'a> {
    name: String,
    vm: &'a Vm,
    cpus: Vec<u32>,
    /// vCPU i on the i-th of `cpus` only.
    pinned: bool,
    entitled_cpus: f64,
}

/// The VMs of a scenario.
pub(super) struct MicroGuests<'a> {
    scenario: &'a Scenario,
    host: &'a Host,
    /// The different ones that fit on the host side by side with nobody else.
    distinct: Vec<&'a Vm>,
}

impl<'a> MicroGuests<'a> {
    /// Nothing runs yet.
    pub(super) fn new(scenario: &'a Scenario, host: &'a Host) -> MicroGuests<'a> {
        let mut distinct: Vec<&Vm> = Vec::new();
        for vm in &scenario.vms {
            // A hostile guest has no bound: nothing that it does is work.
            let fits = vm.vcpus as usize <= host.cpus.len() && vm.pattern != Pattern::Hostile;
            if fits && !distinct.iter().any(|like| is_like(like, vm)) {
                distinct.push(vm);
            }
        }
        MicroGuests { scenario, host, distinct }
    }
}

impl Workload for MicroGuests<'_> {
    fn run_once(
        &mut self,
        variant: &Variant,
        seed: u64,
        attach: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Run> {
        attach()?;
        run_once(self.scenario, variant, &guests(self.scenario, self.host), seed, self.host)
    }

    fn nr_alone(&self) -> usize {
        self.distinct.len()
    }

    /// One vCPU per CPU.
    fn run_alone(&mut self, nth: usize, baseline: &Variant, seed: u64, points: &mut Points) -> Result<()> {
        let vm = self.distinct[nth];
        let cpus = self.host.cpus[..vm.vcpus as usize].to_vec();
        let entitled_cpus = cpus.len() as f64;
        let alone = Guest { name: "alone".into(), vm, cpus, pinned: true, entitled_cpus };
        points.add(&run_once(self.scenario, baseline, &[alone], seed, self.host)?, vm.load().halt_us > 0.0)
    }

    fn bounds(&self, points: &[Points]) -> Vec<VmBound> {
        let shares = entitlements(self.scenario, self.host.cpus.len() as u32);
        let mut bounds = Vec::new();
        for ((name, vm), share_cpus) in self.scenario.each_vm().zip(shares) {
            let found = self.distinct.iter().zip(points).find(|(like, _)| is_like(like, vm));
            bounds.extend(found.and_then(|(_, points)| points.bound(&name, vm.vcpus, share_cpus)));
        }
        bounds
    }
}

fn is_like(one: &Vm, other: &Vm) -> bool {
    one.vcpus == other.vcpus && one.load() == other.load()
}

/// Shows that KVM runs a guest that computes and one that spins and sends IPIs.
///
/// # Errors
/// It does not; the message says how it failed.
pub(crate) fn trial(clock: &Clock) -> Result<()> {
    for pattern in [Pattern::Compute, Pattern::Ipi] {
        let memory = GuestMemory::create(&Load::new(pattern), 2, 1, clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: "trial".into(), vcpus: 2, ple: true, memory: memory.path() };
        let mut vm = VmProcess::spawn(&config)?;
        vm.go()?;
        sleep(Duration::from_millis(200));
        if let Some(why) = vm.stopped() {
            bail!("a guest stopped: {why}");
        }
        let counters = memory.counters(0)?;
        if counters.work == 0 {
            bail!("a guest of pattern {} made no progress in 200 ms", pattern.name());
        }
    }
    Ok(())
}

fn guests<'a>(scenario: &'a Scenario, host: &Host) -> Vec<Guest<'a>> {
    let shares = entitlements(scenario, host.cpus.len() as u32);
    let each = scenario.each_vm().zip(shares).enumerate();
    each.map(|(nth, ((name, vm), entitled_cpus))| {
        let places = scenario.cpus_of(nth as u32, vm);
        let cpus = places.iter().map(|place| host.cpus[*place as usize % host.cpus.len()]).collect();
        let pinned = scenario.layout.placement == Placement::Pinned;
        Guest { name, vm, cpus, pinned, entitled_cpus }
    })
    .collect()
}

/// CPUs that each VM may claim when all want more than they get; it can use as many as it has vCPUs. Pools and CPUs that vCPUs
/// are pinned to are shared each by itself.
fn entitlements(scenario: &Scenario, cpus: u32) -> Vec<f64> {
    // In the root group every vCPU weighs the same; in a group of its own, every VM does.
    let weight = |vm: &Vm| match scenario.layout.cgroups {
        Cgroups::Flat => f64::from(vm.vcpus),
        _ => f64::from(vm.weight.unwrap_or(100)),
    };
    let vms: Vec<&Vm> = scenario.each_vm().map(|(_, vm)| vm).collect();
    let mut entitled = vec![0.0; vms.len()];
    // Shares so many CPUs among all VMs, of which each has so many vCPUs there.
    let mut share = |cpus: u32, there: &dyn Fn(usize, &Vm) -> u32| {
        let claim = |(nth, vm): (usize, &&Vm)| {
            let vcpus = there(nth, vm);
            let weight = weight(vm) * f64::from(vcpus) / f64::from(vm.vcpus);
            Claim { weight, most: f64::from(vcpus.min(cpus)) }
        };
        let claims: Vec<Claim> = vms.iter().enumerate().map(claim).collect();
        shares(&claims, f64::from(cpus)).iter().zip(&mut entitled).for_each(|(more, sum)| *sum += more);
    };
    match (scenario.layout.placement, scenario.layout.pool) {
        (Placement::Pinned, _) => {
            // vCPU i is on CPU i, and begins anew behind the last.
            (0..cpus).for_each(|cpu| share(1, &|_, vm| (vm.vcpus + cpus - 1 - cpu) / cpus));
        }
        (Placement::Pooled, Some(pool)) => {
            let pools = cpus / pool;
            (0..pools).for_each(|n| {
                share(pool, &|nth, vm| if nth as u32 % pools == n { vm.vcpus } else { 0 });
            });
        }
        _ => share(cpus, &|_, vm| vm.vcpus),
    }
    entitled
}

/// One run: start all VMs, let them settle, measure a window, end them.
fn run_once(scenario: &Scenario, variant: &Variant, guests: &[Guest], seed: u64, host: &Host) -> Result<Run> {
    let mut memories = Vec::new();
    let mut vms = Vec::new();
    let member = |guest: &Guest| cgroup::Member {
        name: guest.name.clone(),
        vcpus: guest.vm.vcpus,
        weight: guest.vm.weight,
    };
    let members: Vec<cgroup::Member> = guests.iter().map(member).collect();
    let groups = cgroup::Groups::create(scenario.layout.cgroups, &members)?;
    for (nth, guest) in guests.iter().enumerate() {
        let vcpus = guest.vm.vcpus;
        let seed = seed ^ (nth as u64) << 32;
        let memory =
            GuestMemory::create(&guest.vm.load(), vcpus, seed, host.ns_per_turn, scenario.host.dilation)?;
        let config = VmConfig { name: guest.name.clone(), vcpus, ple: variant.ple, memory: memory.path() };
        let vm = VmProcess::spawn(&config)?;
        groups.adopt(nth, vm.pid(), &vm.tids)?;
        for (i, tid) in vm.tids.iter().enumerate() {
            let one = [guest.cpus[i % guest.cpus.len()]];
            task::bind(*tid, if guest.pinned { &one } else { &guest.cpus })?;
        }
        memories.push(memory);
        vms.push(vm);
    }
    for vm in &mut vms {
        vm.go()?;
    }
    let measured = measure(scenario, guests, (&memories, &vms), host);

    let mut run = measured.unwrap_or_else(|why| Run { error: Some(format!("{why:#}")), ..Run::default() });
    for (vm, guest) in vms.iter_mut().zip(guests) {
        if let Some(why) = vm.stopped() {
            run.error = Some(format!("{}: {why}", guest.name));
        }
    }
    run.extra.extend(Counts::of_vms().since(&Counts::default()));
    vms.iter_mut().for_each(VmProcess::end);
    drop(vms);
    groups.remove().context("a VM's cgroup could not be removed")?;
    Ok(run)
}

/// A window, once all are up and have settled.
fn measure(
    scenario: &Scenario,
    guests: &[Guest],
    (memories, vms): (&[GuestMemory], &[VmProcess]),
    host: &Host,
) -> Result<Run> {
    let _on_time = task::RealTime::begin();
    wait_until_online(guests, memories, vms)?;
    wait(scenario.settle_time(), vms)?;
    let sleeper = wakeups::Sleeper::start();
    let before = Sample::take(memories, vms, host.probe.as_ref())?;
    wait(scenario.window(), vms)?;
    let after = Sample::take(memories, vms, host.probe.as_ref())?;
    let mut run = sample::difference(guests, vms, &before, &after);
    run.extra.extend(sleeper.finish());
    Ok(run)
}

/// Lets VMs work for a while.
///
/// # Errors
/// One has ended before: Ctrl-C on a terminal ends them all.
fn wait(length: Duration, vms: &[VmProcess]) -> Result<()> {
    match VmProcess::first_end(vms, length)? {
        Some(nth) => bail!("VM {} ended while it was measured", nth + 1),
        None => Ok(()),
    }
}

/// Guests start by waiting, with PAUSE, until all their vCPUs are up; none of that belongs to a measurement.
fn wait_until_online(guests: &[Guest], memories: &[GuestMemory], vms: &[VmProcess]) -> Result<()> {
    const PATIENCE_NS: u64 = 60_000_000_000;
    let start = now_ns();
    for (guest, memory) in guests.iter().zip(memories) {
        while memory.online()? < guest.vm.vcpus {
            if now_ns() - start > PATIENCE_NS {
                bail!("{}: not all vCPUs came up within a minute", guest.name);
            }
            wait(Duration::from_millis(1), vms)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn of(text: &str) -> Vec<f64> {
        let scenario = Scenario::parse(&format!("title = \"t\"\n{text}"), Path::new("x")).unwrap();
        entitlements(&scenario, 4)
    }

    #[test]
    fn cpus_of_some_are_shared_among_these() {
        let placed =
            |how: &str, vms: &str| of(&format!("[host]\ncpus = 4\n[layout]\nplacement = {how}\n{vms}"));
        let vm = |count, vcpus| format!("[[vm]]\ncount = {count}\nvcpus = {vcpus}\npattern = \"compute\"\n");
        assert_eq!(placed("\"pinned\"", &vm(2, 2)), [1.0, 1.0], "two CPUs stay idle");
        assert_eq!(placed("\"pinned\"", &(vm(1, 4) + &vm(1, 2))), [3.0, 1.0]);
        assert_eq!(placed("\"pinned\"", &(vm(1, 6) + &vm(1, 2))), [2.0 + 4.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(placed("\"pooled\"\npool = 2", &vm(3, 2)), [1.0, 2.0, 1.0]);
        assert_eq!(placed("\"pooled\"\npool = 2", &vm(2, 4)), [2.0, 2.0]);
    }

    #[test]
    fn shares_follow_weights_and_stop_at_the_vcpus() {
        let lock = |vcpus, rest: &str| format!("[[vm]]\nvcpus = {vcpus}\npattern = \"lock\"\n{rest}\n");
        let two = format!("{}{}", lock(4, ""), lock(4, ""));
        assert_eq!(of(&two), [2.0, 2.0]);
        let unequal = format!("{}{}", lock(6, ""), lock(2, ""));
        assert_eq!(of(&unequal), [3.0, 1.0]);
        let small = format!("{}{}", lock(1, ""), lock(4, ""));
        assert_eq!(of(&small), [0.8, 3.2]);
        let grouped = |body: &str| of(&format!("[layout]\ncgroups = \"per-vm\"\n{body}"));
        assert_eq!(grouped(&small), [1.0, 3.0]);
        let weighted = format!("{}{}", lock(4, "weight = 100"), lock(4, "weight = 300"));
        assert_eq!(grouped(&weighted), [1.0, 3.0]);
    }
}
