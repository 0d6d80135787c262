// SPDX-License-Identifier: GPL-2.0-only
//! What each VM could have now if it wanted all that it can use: from what all have used and waited for since the last
//! look, their weights, their CPUs and their limits; all that it can use, while its CPUs are not full. Those that listen
//! are told (see [`crate::channel`]).

use crate::channel::{Channel, SOCKET};
use anyhow::{Context, Result};
use overbook_policy::OVB_WEIGHT_NICE_0;
use overbook_policy::entitle::{Claim, OVB_ENTITLE_ONE, entitled, full, parts};
use overbook_scheduler::Scheduler;
use overbook_scheduler::times::{STAT, Times, tick_ns};
use overbook_scheduler::told::Told;
use overbook_scheduler::usage::VmUse;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often VMs are told, before dilation.
const PERIOD: Duration = Duration::from_millis(500);
/// So many figures of a VM are remembered: a minute's.
const REMEMBERED: usize = 120;
/// A figure holds on while the VM could have had no less than this below it, in CPUs.
const ABOUT: f64 = 0.125;

/// CPUs become full, or cease to be, once so many looks in a row have found them so.
const LOOKS: u32 = 2;

/// What a VM could have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Could {
    /// CPUs, beside what others want.
    pub share: f64,
    /// CPUs, if others leave it all.
    pub most: f64,
    /// CPUs that it may run on, and how many of them idled.
    pub cpus: f64,
    /// See `cpus`.
    pub idle: f64,
}

/// The host at one moment.
#[derive(Clone, Debug, Default)]
pub struct HostUse {
    /// VMs by process.
    pub vms: BTreeMap<u32, VmUse>,
    /// ns that each CPU has been busy, whatever with.
    pub busy_ns: BTreeMap<usize, u64>,
}

/// What a VM could have; `None` if it was not there before.
///
/// Whatever is no vCPU, QEMU's other threads and SCHED_IDLE tasks included, counts as one more VM of a default `cpu.weight`
/// that may run anywhere, and wants what it has had.
///
/// CPUs that VMs share in part count by the part: one that may run on four CPUs, two of which are this one's, competes
/// with half of its weight for half of what it wants.
pub fn could_have(before: &HostUse, now: &HostUse, elapsed_ns: u64, pid: u32) -> Option<Could> {
    let (own, _) = (now.vms.get(&pid)?, before.vms.get(&pid)?);
    let elapsed = elapsed_ns.max(1) as f64;
    let since = |new: u64, old: u64| new.saturating_sub(old) as f64 / elapsed;
    // A CPU that has come has been busy since the boot, and not only since then.
    let busy = |cpu: usize| Some(since(*now.busy_ns.get(&cpu)?, *before.busy_ns.get(&cpu)?));
    let mut others_use: f64 = own.cpus.iter().filter_map(busy).sum();
    let cpus = own.cpus.len() as f64;
    let idle = (cpus - others_use).max(0.0);
    let (mut claims, mut heaviest) = (Vec::new(), own.weight);
    for (other, vm) in &now.vms {
        let shared = vm.cpus.shared(&own.cpus) as f64;
        let Some(then) = before.vms.get(other).filter(|_| shared > 0.0) else { continue };
        let part = shared / vm.cpus.len() as f64;
        let ran = since(vm.run_ns, then.run_ns);
        others_use -= ran * part;
        if *other != pid {
            // Who is throttled waits as well, for what it will not get.
            let wants = (ran + since(vm.queued_ns, then.queued_ns)).min(vm.limit.unwrap_or(f64::MAX));
            claims.push((vm.weight * part, wants * part));
            heaviest = heaviest.max(vm.weight * part);
        }
    }
    // Were this taken off, a VM that once wanted little would find the rest taken for ever.
    let rest = f64::from(OVB_WEIGHT_NICE_0) * cpus / now.busy_ns.len().max(1) as f64;
    claims.push((rest, others_use.max(0.0)));
    heaviest = heaviest.max(rest);
    // Beside others of a million times its weight it has next to nothing.
    let weight = |weight: f64| ((weight / heaviest * f64::from(1 << 20)) as u32).max(1);
    let mut claims: Vec<Claim> =
        claims.into_iter().map(|(heavy, wants)| Claim::new(weight(heavy), parts(wants))).collect();
    let most = f64::from(own.vcpus).min(cpus).min(own.limit.unwrap_or(f64::MAX));
    let could = entitled(&mut claims, weight(own.weight), parts(most), parts(cpus));
    Some(Could { share: f64::from(could) / f64::from(OVB_ENTITLE_ONE), most, cpus, idle })
}

/// What is remembered of a VM.
#[derive(Default)]
struct Memory {
    /// What it could have had.
    cpus: VecDeque<(Instant, f64)>,
    /// Whether its CPUs are full, and how many looks in a row have found otherwise.
    full: bool,
    otherwise: u32,
}

impl Memory {
    /// What the VM is told: CPUs that it could have.
    fn decide(&mut self, could: &Could) -> f64 {
        let found = full(parts(could.idle), parts(could.cpus), self.full);
        self.otherwise = if found == self.full { 0 } else { self.otherwise + 1 };
        if self.otherwise == LOOKS {
            (self.full, self.otherwise) = (found, 0);
        }
        if self.full { could.share } else { could.most }
    }

    /// For how long it could have had about as much as now.
    fn remember(&mut self, at: Instant, cpus: f64) -> Duration {
        if self.cpus.len() == REMEMBERED {
            self.cpus.pop_front();
        }
        self.cpus.push_back((at, cpus));
        let held = self.cpus.iter().rev().take_while(|(_, then)| *then >= cpus - ABOUT).last();
        held.map_or(Duration::ZERO, |(since, _)| at - *since)
    }
}

/// Tells VMs what they could have, period by period.
pub struct Teller {
    channel: Channel,
    period: Duration,
    stretch: f64,
    last: Option<(Instant, HostUse)>,
    memories: BTreeMap<u32, Memory>,
}

impl Teller {
    /// Listens; nobody is told yet. Times are stretched by `stretch`.
    ///
    /// # Errors
    /// There can be no socket.
    pub fn new(stretch: f64) -> Result<Teller> {
        let channel = Channel::open(Path::new(SOCKET))?;
        let period = PERIOD.mul_f64(stretch);
        Ok(Teller { channel, period, stretch, last: None, memories: BTreeMap::new() })
    }

    /// Does what is due; to be called now and then, and without much cost if nobody listens.
    ///
    /// # Errors
    /// What the scheduler knows cannot be read.
    pub fn look(&mut self, scheduler: &Scheduler) -> Result<()> {
        let vms = self.last.as_ref().map(|(_, host)| &host.vms);
        self.channel.accept(|pid| vms.is_some_and(|vms| vms.contains_key(&pid)));
        let at = Instant::now();
        if self.last.as_ref().is_some_and(|(then, _)| at - *then < self.period) {
            return Ok(());
        }
        self.channel.forget_closed();
        let listeners: Vec<u32> = self.channel.processes().collect();
        self.memories.retain(|pid, _| listeners.contains(pid));
        if listeners.is_empty() {
            self.last = None;
            return Ok(());
        }
        let now = HostUse { vms: scheduler.vms_use()?, busy_ns: busy_ns()? };
        let Some((then, before)) = self.last.replace((at, now.clone())) else { return Ok(()) };
        for pid in listeners {
            let Some(could) = could_have(&before, &now, (at - then).as_nanos() as u64, pid) else { continue };
            let memory = self.memories.entry(pid).or_default();
            let cpus = memory.decide(&could);
            let held = memory.remember(at, cpus);
            // In the time of who is told, as all else that it counts.
            let for_ms = held.div_f64(self.stretch).as_millis() as u64;
            let cpus = (cpus * 100.0).round() / 100.0;
            self.channel.tell(pid, &Told { cpus, for_ms })?;
        }
        Ok(())
    }
}

/// For how long each CPU has been busy since the boot.
fn busy_ns() -> Result<BTreeMap<usize, u64>> {
    let text = fs::read_to_string(STAT).with_context(|| format!("cannot read {STAT}"))?;
    Ok(Times::parse(&text, tick_ns())?.into_iter().map(|(cpu, times)| (cpu, times.run_ns)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_cli::affinity::CpuMask;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_cpu_that_has_come_was_not_busy_all_that_time() {
        let (mut before, mut now) = host(&[(4, 0..4, 1.5, 0.0), (4, 0..4, 1.5, 1.0)], &[0.0; 4]);
        before.busy_ns.remove(&3);
        *now.busy_ns.get_mut(&3).unwrap() += 100_000 * SECOND;
        let as_if_idle = host(&[(4, 0..4, 1.5, 0.0), (4, 0..4, 1.5, 1.0)], &[0.0; 4]);
        assert_eq!(told(&(before, now), 0), told(&as_if_idle, 0));
    }

    /// VMs of equal weight with so many vCPUs on these CPUs, that have run and waited for so much in a second; and what
    /// else each CPU did.
    fn host(vms: &[(u32, std::ops::Range<usize>, f64, f64)], else_busy: &[f64]) -> (HostUse, HostUse) {
        let mut now = HostUse {
            busy_ns: else_busy.iter().map(|busy| (busy * 1e9) as u64).enumerate().collect(),
            ..Default::default()
        };
        for (nth, (vcpus, cpus, ran, waited)) in vms.iter().enumerate() {
            let cpus: CpuMask = cpus.clone().collect();
            for cpu in cpus.iter() {
                *now.busy_ns.entry(cpu).or_default() += (ran * 1e9) as u64 / cpus.len() as u64;
            }
            let of = |time: &f64| (time * 1e9) as u64;
            let vm = VmUse {
                weight: 1024.0,
                limit: None,
                vcpus: *vcpus,
                cpus,
                run_ns: of(ran),
                queued_ns: of(waited),
            };
            now.vms.insert(nth as u32, vm);
        }
        let idle = now.busy_ns.keys().map(|cpu| (*cpu, 0)).collect();
        let mut before = HostUse { busy_ns: idle, vms: now.vms.clone() };
        for vm in before.vms.values_mut() {
            (vm.run_ns, vm.queued_ns) = (0, 0);
        }
        (before, now)
    }

    fn told(host: &(HostUse, HostUse), pid: u32) -> f64 {
        (could_have(&host.0, &host.1, SECOND, pid).unwrap().share * 100.0).round() / 100.0
    }

    #[test]
    fn two_that_want_all_have_half_and_one_alone_has_all() {
        let both = host(&[(4, 0..4, 2.0, 2.0), (4, 0..4, 2.0, 2.0)], &[0.0; 4]);
        assert_eq!((told(&both, 0), told(&both, 1)), (2.0, 2.0));
        let quiet = host(&[(4, 0..4, 2.0, 0.0), (4, 0..4, 0.0, 0.0)], &[0.0; 4]);
        assert_eq!((told(&quiet, 0), told(&quiet, 1)), (4.0, 2.0));
        let packed = host(&[(4, 0..4, 2.0, 0.0), (4, 0..4, 2.0, 2.0)], &[0.0; 4]);
        assert_eq!((told(&packed, 0), told(&packed, 1)), (2.0, 2.0));
    }

    #[test]
    fn cpus_vcpus_limits_and_others_bound_it() {
        // Two of four CPUs are theirs, and half of one has other work, which may run on all four and weighs half here.
        let pinned = host(&[(4, 0..2, 0.75, 1.0), (4, 0..2, 0.75, 1.0)], &[0.5, 0.0, 1.0, 1.0]);
        assert_eq!(told(&pinned, 0), 0.8);
        // It may use half of what the other is bound to.
        let overlap = host(&[(4, 0..2, 1.0, 1.0), (4, 0..4, 2.0, 2.0)], &[0.0; 4]);
        assert_eq!(told(&overlap, 0), 1.33);
        let small = host(&[(1, 0..4, 0.1, 0.0)], &[0.0; 4]);
        assert_eq!(told(&small, 0), 1.0);
        let mut limited = host(&[(4, 0..4, 0.5, 3.0)], &[0.0; 4]);
        limited.1.vms.get_mut(&0).unwrap().limit = Some(0.5);
        assert_eq!(told(&limited, 0), 0.5);
        let mut throttled = host(&[(4, 0..4, 3.5, 0.5), (4, 0..4, 0.5, 3.5)], &[0.0; 4]);
        throttled.1.vms.get_mut(&1).unwrap().limit = Some(0.5);
        assert_eq!((told(&throttled, 0), told(&throttled, 1)), (3.5, 0.5), "a limit binds what others leave");
        let mut heavy = host(&[(4, 0..4, 3.0, 1.0), (4, 0..4, 1.0, 3.0)], &[0.0; 4]);
        heavy.1.vms.get_mut(&0).unwrap().weight = 3072.0;
        assert_eq!((told(&heavy, 0), told(&heavy, 1)), (3.0, 1.0));
        assert_eq!(could_have(&heavy.0, &heavy.1, SECOND, 7), None);
    }

    /// Other work takes what a VM leaves, and gives it back.
    #[test]
    fn other_work_has_its_share_and_no_more() {
        let small = host(&[(4, 0..4, 1.0, 0.0)], &[0.75; 4]);
        assert_eq!(told(&small, 0), 2.0);
        let crowded = host(&[(4, 0..4, 1.0, 1.0), (4, 0..4, 1.0, 3.0)], &[0.5; 4]);
        assert_eq!((told(&crowded, 0), told(&crowded, 1)), (1.33, 1.33));
        let little = host(&[(4, 0..4, 3.5, 0.5)], &[0.125; 4]);
        assert_eq!(told(&little, 0), 3.5);
        // On two of four CPUs it weighs a half.
        let bound = host(&[(2, 0..2, 0.5, 0.0)], &[0.75, 0.75, 0.5, 0.5]);
        assert_eq!(told(&bound, 0), 1.33);
    }

    #[test]
    fn where_cpus_idle_a_vm_can_have_all() {
        let could = |host: &(HostUse, HostUse)| could_have(&host.0, &host.1, SECOND, 0).unwrap();
        let busy = could(&host(&[(4, 0..4, 2.0, 2.0), (4, 0..4, 2.0, 2.0)], &[0.0; 4]));
        assert_eq!((busy.cpus, busy.idle, busy.most), (4.0, 0.0, 4.0));
        let bursts = could(&host(&[(4, 0..4, 1.75, 1.0), (4, 0..4, 1.75, 1.0)], &[0.0; 4]));
        assert_eq!((bursts.idle, bursts.share), (0.5, 2.0));
        let mut memory = Memory::default();
        assert_eq!([&busy, &bursts, &busy, &busy].map(|could| memory.decide(could)), [4.0, 4.0, 4.0, 2.0]);
        // Packed, they leave some of it.
        let packed = could(&host(&[(4, 0..4, 1.94, 0.2), (4, 0..4, 1.94, 0.2)], &[0.0; 4]));
        assert_eq!([&packed, &packed, &packed].map(|could| memory.decide(could)), [2.0; 3]);
        // One look says little.
        assert_eq!([&bursts, &packed, &bursts].map(|could| memory.decide(could)), [2.0; 3]);
        assert_eq!([&bursts, &packed].map(|could| memory.decide(could)), [4.0, 4.0]);
    }

    #[test]
    fn how_long_it_has_been_so() {
        let (start, mut memory) = (Instant::now(), Memory::default());
        let mut at =
            |seconds: u64, cpus: f64| memory.remember(start + Duration::from_secs(seconds), cpus).as_secs();
        assert_eq!(at(0, 2.0), 0);
        assert_eq!(at(1, 2.1), 1);
        assert_eq!(at(2, 4.0), 0);
        assert_eq!(at(3, 3.95), 1);
        assert_eq!(at(4, 2.0), 4, "it could have had that all the time");
        assert_eq!(at(5, 4.0), 0);
    }
}
