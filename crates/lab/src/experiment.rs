// SPDX-License-Identifier: GPL-2.0-only
//! Runs VMs under variants of a scheduler, interleaved, and measures them. The same on any host: emulated,
//! nested or real.

mod bound;
mod cgroup;
pub mod guest;
mod linux;
mod rival;
mod sample;
pub(crate) mod scheduler;
pub(crate) mod tuning;
mod wakeups;

use crate::instrument::Clock;
use crate::protocol::Event;
use crate::scenario::{Cgroups, Placement, Scenario, Variant, Vm};
use crate::switches::Counts;
use crate::task::{self, now_ns};
use anyhow::{Context, Result, bail};
use overbook_probe::Probe;
use overbook_report::schema::Run;
use overbook_vmm::{GuestMemory, Load, Pattern, VmConfig, VmProcess};
use sample::Sample;
use std::thread::sleep;
use std::time::Duration;

/// The host that the VMs run on.
pub struct Host {
    /// Online CPUs that VMs may use.
    pub cpus: Vec<u32>,
    /// Time of one turn of the fixed loop on one CPU while the others are busy.
    pub ns_per_turn: f64,
    /// Counters of KVM; without them, reports have zeros there.
    pub probe: Option<Probe>,
    /// EEVDF's base slice before anybody touched it; 0 if it cannot be read.
    pub default_slice_ns: u64,
}

/// One VM of a run.
struct Guest<'a> {
    name: String,
    vm: &'a Vm,
    cpus: Vec<u32>,
    /// vCPU i on the i-th of `cpus` only.
    pinned: bool,
    entitled_cpus: f64,
}

/// Runs a scenario and says every result to `say`.
///
/// # Errors
/// KVM, a cgroup or a scheduler knob does not work here; the message says which. A guest that fails spoils
/// its run only: the run carries the error.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    host: &Host,
    say: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<()> {
    let bounds = if scenario.measure.bound && !scenario.vms.is_empty() {
        bound::distinct(scenario, host)
    } else {
        Vec::new()
    };
    let mut overbook = scheduler::Scheduler::new(if scenario.guest.is_some() { "guest" } else { "host" });
    let start = |spec| linux::Fleet::start(spec, scenario, &host.cpus, say);
    let mut fleet = scenario.linux.as_ref().map(start).transpose()?;
    let alone = fleet.as_ref().filter(|_| scenario.measure.bound).map_or(Vec::new(), linux::Fleet::distinct);
    let nr_points = bounds.len() + alone.len();
    let mut points: Vec<bound::Points> = (0..nr_points).map(|_| bound::Points::default()).collect();
    let total = scenario.measure.repetitions * (scenario.variants.len() + nr_points) as u32;
    let mut done = 0;
    for repetition in 0..scenario.measure.repetitions {
        let run_seed = seed.wrapping_mul(1_000_003).wrapping_add(repetition.into());
        // Rotated, so that no variant always runs first.
        for nth in 0..scenario.variants.len() {
            let variant = &scenario.variants[(nth + repetition as usize) % scenario.variants.len()];
            let guests = guests(scenario, host);
            let tuning = tuning::apply(variant, scenario.host.dilation, host.default_slice_ns)?;
            let yields = Counts::of_yields();
            // In Linux guests, `guest` is theirs, and `overbook` the host's.
            let of_guest =
                scenario.guest.as_ref().and(variant.guest.as_ref()).map(|own| guest::arguments(own));
            let arguments = variant.overbook.as_ref().or(of_guest.as_ref());
            let mut attach = || match arguments {
                Some(arguments) => overbook
                    .attach(arguments, scenario.host.dilation)
                    .with_context(|| format!("variant {}", variant.name)),
                None => Ok(()),
            };
            // What others' schedulers do wrong is a result.
            let mut rival = Ok(None);
            if let Some((program, arguments)) = variant.scheduler(scenario.host.dilation) {
                rival = rival::Rival::start(&program, &arguments).map(Some);
            }
            let mut run = match (&scenario.guest, &mut fleet, &rival) {
                (_, _, Err(why)) => Run { error: Some(format!("{why:#}")), ..Run::default() },
                (Some(spec), ..) => guest::run_once(scenario, spec, host, &mut attach)?,
                (None, Some(fleet), _) => {
                    attach()?;
                    fleet.run_once(scenario, variant)?
                }
                (None, None, _) => {
                    attach()?;
                    run_once(scenario, variant, &guests, run_seed, host)?
                }
            };
            if let Ok(Some(rival)) = rival
                && let Err(why) = rival.end()
            {
                run.error = Some(format!("{why:#}"));
            }
            if arguments.is_some() {
                match overbook.detach() {
                    Ok(counters) => run.extra.extend(counters),
                    Err(e) => run.error = Some(format!("{e:#}")),
                }
            }
            run.extra.extend(Counts::of_yields().since(&yields));
            drop(tuning);
            run.variant = variant.name.clone();
            run.repetition = repetition;
            say(Event::Run(Box::new(run)))?;
            done += 1;
            say(Event::Progress(done, total))?;
        }
        for (spec, points) in bounds.iter().zip(&mut points) {
            let tuning = tuning::apply(&scenario.variants[0], scenario.host.dilation, host.default_slice_ns)?;
            let run = run_once(scenario, &scenario.variants[0], &[spec.guest(host)], run_seed, host)?;
            drop(tuning);
            points.add(&run);
            done += 1;
            say(Event::Progress(done, total))?;
        }
        for (nth, points) in alone.iter().zip(&mut points) {
            // Under the baseline, as all bounds are.
            let Some(fleet) = &mut fleet else { continue };
            let tuning = tuning::apply(&scenario.variants[0], scenario.host.dilation, host.default_slice_ns)?;
            points.add_guest(&fleet.alone(scenario, *nth)?);
            drop(tuning);
            done += 1;
            say(Event::Progress(done, total))?;
        }
    }
    let found = match &fleet {
        Some(fleet) => fleet.bounds(&points),
        None => bound::conclude(scenario, host, &bounds, &points),
    };
    say(Event::Bounds(found))
}

/// Shows that KVM runs a guest that computes and one that spins and sends IPIs.
///
/// # Errors
/// It does not; the message says how it failed.
pub fn trial(clock: &Clock) -> Result<()> {
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
    let shares = entitlements(scenario, host.cpus.len() as f64);
    let each = scenario.each_vm().zip(shares).enumerate();
    each.map(|(nth, ((name, vm), entitled_cpus))| {
        let places = scenario.cpus_of(nth as u32, vm);
        let cpus = places.iter().map(|place| host.cpus[*place as usize % host.cpus.len()]).collect();
        let pinned = scenario.layout.placement == Placement::Pinned;
        Guest { name, vm, cpus, pinned, entitled_cpus }
    })
    .collect()
}

/// CPUs that each VM may claim when all want more than they get: by weight, but no more than it has vCPUs;
/// what one cannot use is shared among the others. Pools are taken as they are.
fn entitlements(scenario: &Scenario, cpus: f64) -> Vec<f64> {
    let vms: Vec<&Vm> = scenario.each_vm().map(|(_, vm)| vm).collect();
    let mut share = vec![0.0; vms.len()];
    // In the root group every vCPU weighs the same; in a group of its own, every VM does.
    let weight = |vm: &Vm| match scenario.layout.cgroups {
        Cgroups::Flat => f64::from(vm.vcpus),
        _ => f64::from(vm.weight.unwrap_or(100)),
    };
    let most = |vm: &Vm| match (scenario.layout.placement, scenario.layout.pool) {
        (Placement::Pooled, Some(pool)) => f64::from(vm.vcpus.min(pool)),
        _ => f64::from(vm.vcpus).min(cpus),
    };
    let mut open: Vec<usize> = (0..vms.len()).collect();
    let mut left = cpus;
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|i| weight(vms[*i])).sum();
        let full: Vec<usize> =
            open.iter().copied().filter(|i| left * weight(vms[*i]) / weights >= most(vms[*i])).collect();
        if full.is_empty() {
            for i in open {
                share[i] = left * weight(vms[i]) / weights;
            }
            break;
        }
        for i in &full {
            share[*i] = most(vms[*i]);
            left -= share[*i];
        }
        open.retain(|i| !full.contains(i));
    }
    share
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
    // The controller should not wait behind the vCPUs that it measures. Where it may not be real-time (no root),
    // the window is longer than asked for, and rates are still right: each is over its own window.
    let _ = task::set_policy(libc::SCHED_FIFO, 1);
    wait_until_online(guests, &memories)?;
    sleep(Duration::from_secs_f64(scenario.measure.settle_seconds * scenario.host.dilation));
    let sleeper = wakeups::Sleeper::start();
    let before = Sample::take(&memories, &vms, host.probe.as_ref());
    sleep(Duration::from_secs_f64(scenario.measure.seconds * scenario.host.dilation));
    let after = Sample::take(&memories, &vms, host.probe.as_ref());
    let _ = task::set_policy(libc::SCHED_OTHER, 0);

    let mut run = match (before, after) {
        (Ok(before), Ok(after)) => sample::difference(guests, &vms, &before, &after),
        (Err(e), _) | (_, Err(e)) => Run { error: Some(format!("{e:#}")), ..Run::default() },
    };
    for (vm, guest) in vms.iter_mut().zip(guests) {
        if let Some(why) = vm.stopped() {
            run.error = Some(format!("{}: {why}", guest.name));
        }
    }
    run.extra.extend(sleeper.finish());
    run.extra.extend(Counts::of_vms().since(&Counts::default()));
    vms.iter_mut().for_each(VmProcess::end);
    drop(vms);
    groups.remove().context("a VM's cgroup could not be removed")?;
    Ok(run)
}

/// Guests start by waiting, with PAUSE, until all their vCPUs are up; none of that belongs to a measurement.
fn wait_until_online(guests: &[Guest], memories: &[GuestMemory]) -> Result<()> {
    const PATIENCE_NS: u64 = 60_000_000_000;
    let start = now_ns();
    for (guest, memory) in guests.iter().zip(memories) {
        while memory.online()? < guest.vm.vcpus {
            if now_ns() - start > PATIENCE_NS {
                bail!("{}: not all vCPUs came up within a minute", guest.name);
            }
            sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn shares(text: &str) -> Vec<f64> {
        let scenario = Scenario::parse(&format!("title = \"t\"\n{text}"), Path::new("x")).unwrap();
        entitlements(&scenario, 4.0)
    }

    #[test]
    fn shares_follow_weights_and_stop_at_the_vcpus() {
        let lock = |vcpus, rest: &str| format!("[[vm]]\nvcpus = {vcpus}\npattern = \"lock\"\n{rest}\n");
        let two = format!("{}{}", lock(4, ""), lock(4, ""));
        assert_eq!(shares(&two), [2.0, 2.0]);
        let unequal = format!("{}{}", lock(6, ""), lock(2, ""));
        assert_eq!(shares(&unequal), [3.0, 1.0]);
        let small = format!("{}{}", lock(1, ""), lock(4, ""));
        assert_eq!(shares(&small), [0.8, 3.2]);
        let grouped = |body: &str| shares(&format!("[layout]\ncgroups = \"per-vm\"\n{body}"));
        assert_eq!(grouped(&small), [1.0, 3.0]);
        let weighted = format!("{}{}", lock(4, "weight = 100"), lock(4, "weight = 300"));
        assert_eq!(grouped(&weighted), [1.0, 3.0]);
    }
}
