// SPDX-License-Identifier: GPL-2.0-only
//! Counters at one moment, and what happened between two.

use super::Guest;
use crate::machine::task::{self, TaskCounts, now_ns};
use anyhow::{Result, bail};
use overbook_probe::{Probe, VmCounts};
use overbook_report::schema::{KvmCounters, Run, VcpuResult, VmResult, WaitHistogram};
use overbook_vmm::memory::bucket_upper_ticks;
use overbook_vmm::{Counters, GuestMemory, VmProcess};
use std::collections::BTreeMap;

/// All counters of a run's VMs at one moment.
pub struct Sample {
    /// Per VM: when its guest counters were read, and these.
    guests: Vec<(u64, Vec<Counters>)>,
    /// Per VM and vCPU.
    tasks: Vec<Vec<TaskCounts>>,
    context_switches: u64,
    /// Per VM process; nothing without probes.
    kvm: Option<BTreeMap<i32, VmCounts>>,
}

impl Sample {
    /// Reads everything; the guests' own counters first, as the rates come from them.
    pub fn take(memories: &[GuestMemory], vms: &[VmProcess], probe: Option<&Probe>) -> Result<Sample> {
        let mut guests = Vec::new();
        for (memory, vm) in memories.iter().zip(vms) {
            let at = now_ns();
            let counters: Vec<Counters> =
                (0..vm.tids.len() as u32).map(|i| memory.counters(i)).collect::<Result<_>>()?;
            if let Some(fault) = counters.iter().find_map(|c| c.fault.as_ref()) {
                bail!("{fault}");
            }
            guests.push((at, counters));
        }
        let count = |vm: &VmProcess| vm.tids.iter().map(|tid| task::counts(vm.pid(), *tid)).collect();
        let tasks = vms.iter().map(count).collect::<Result<Vec<Vec<TaskCounts>>>>()?;
        let kvm = probe.map(Probe::read).transpose()?;
        Ok(Sample { guests, tasks, context_switches: task::context_switches(), kvm })
    }
}

/// The result of the window between two samples.
pub fn difference(guests: &[Guest], vms: &[VmProcess], before: &Sample, after: &Sample) -> Run {
    let mut run =
        Run { context_switches: after.context_switches - before.context_switches, ..Run::default() };
    for (nth, (guest, vm)) in guests.iter().zip(vms).enumerate() {
        let (start, old) = &before.guests[nth];
        let (end, new) = &after.guests[nth];
        let window_ns = (end - start).max(1);
        run.window_ns = run.window_ns.max(window_ns);
        let mut vcpus = Vec::new();
        for i in 0..old.len() {
            let task = after.tasks[nth][i] - before.tasks[nth][i];
            vcpus.push(vcpu(&old[i], &new[i], task, vm.tsc_khz));
        }
        let work = vcpus.iter().map(|v| v.work).sum();
        let run_ns: u64 = vcpus.iter().map(|v| v.run_ns).sum();
        run.migrations += vcpus.iter().map(|v| v.migrations).sum::<u64>();
        run.vms.push(VmResult {
            name: guest.name.clone(),
            pattern: guest.vm.load().label(),
            unit: guest.vm.pattern.unit().into(),
            work,
            rate: work as f64 * 1e9 / window_ns as f64,
            cpus_used: run_ns as f64 / window_ns as f64,
            entitled_cpus: guest.entitled_cpus,
            kvm: kvm_counters(before.kvm.as_ref(), after.kvm.as_ref(), vm.pid()),
            vcpus,
        });
    }
    run
}

fn kvm_counters(
    before: Option<&BTreeMap<i32, VmCounts>>,
    after: Option<&BTreeMap<i32, VmCounts>>,
    pid: i32,
) -> KvmCounters {
    let (Some(before), Some(after)) = (before, after) else {
        return KvmCounters::unseen();
    };
    let none = VmCounts::default();
    let counts = after.get(&pid).unwrap_or(&none) - before.get(&pid).unwrap_or(&none);
    KvmCounters {
        unseen: false,
        exits: counts.exits,
        on_spin: counts.on_spin,
        yield_tried: counts.yield_tried,
        yield_ok: counts.yield_ok,
        yield_same_rq: counts.yield_same_rq,
        yield_other_rq: counts.yield_other_rq,
    }
}

fn vcpu(old: &Counters, new: &Counters, task: TaskCounts, tsc_khz: u32) -> VcpuResult {
    VcpuResult {
        work: new.work - old.work,
        spins: new.spins - old.spins,
        interrupts: new.interrupts - old.interrupts,
        wait: waits(old, new, tsc_khz),
        steal_ns: new.steal_ns.saturating_sub(old.steal_ns),
        ..VcpuResult::from(task)
    }
}

fn waits(old: &Counters, new: &Counters, tsc_khz: u32) -> WaitHistogram {
    let ns = |ticks: u64| (ticks as f64 * 1e6 / f64::from(tsc_khz.max(1))) as u64;
    let pairs = old.wait_buckets.iter().zip(&new.wait_buckets).enumerate();
    let buckets: Vec<(u64, u64)> = pairs
        .filter(|(_, (old, new))| new > old)
        .map(|(bucket, (old, new))| (ns(bucket_upper_ticks(bucket)), new - old))
        .collect();
    // Only the bucket of the longest wait in the window is known, so its upper bound stands for it.
    let max_ns = buckets.last().map_or(0, |(upper, _)| *upper);
    WaitHistogram { buckets, max_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_the_window_only() {
        let mut old = Counters { wait_buckets: vec![0; 32], ..Counters::default() };
        old.wait_buckets[3] = 5;
        let mut new = old.clone();
        new.wait_buckets[3] = 7;
        new.wait_buckets[20] = 1;
        let histogram = waits(&old, &new, 500_000);
        assert_eq!(histogram.buckets, [(6, 2), (40, 1)]);
        assert_eq!(histogram.max_ns, 40);
    }
}
