// SPDX-License-Identifier: GPL-2.0-only
//! All counters at one moment.

use crate::vms::{self, Threads};
use anyhow::{Context, Result};
use overbook_host::preflight;
use overbook_host::stats::{HostStats, vm_name};
use overbook_probe::{Probe, SpinTime};
use scx_stats::prelude::StatsClient;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// One vCPU since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuCounters {
    /// Thread.
    pub tid: i32,
    /// On a CPU, ns.
    pub run_ns: u64,
    /// Runnable and waiting for a CPU, ns: what the guest sees as steal.
    pub wait_ns: u64,
    /// Spinning until KVM was told, ns; since the probes were attached.
    pub spin_ns: u64,
    /// PAUSE exits that KVM took for spinning; since the probes were attached.
    pub spins: u64,
}

/// One VM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VmCounters {
    /// QEMU's `-name`, or the command.
    pub name: String,
    /// By vCPU id.
    pub vcpus: BTreeMap<u32, VcpuCounters>,
    /// Directed yields that KVM tried, and that gave way; since the probes were attached.
    pub yields_tried: u64,
    /// See `yields_tried`.
    pub yields_ok: u64,
}

/// The host at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// ns since the first one.
    pub at_ns: u64,
    /// Online CPUs.
    pub cpus: u32,
    /// `EEVDF`, or the sched_ext scheduler that is loaded.
    pub scheduler: String,
    /// By process.
    pub vms: BTreeMap<i32, VmCounters>,
    /// What `overbook host` has counted, if it runs.
    pub overbook: Option<HostStats>,
}

/// Takes snapshots.
pub struct Observer {
    start: Instant,
    probe: Option<Probe>,
    /// Why there are no probes.
    pub blind: Option<String>,
    client: Option<StatsClient>,
}

impl Observer {
    /// Attaches the probes if this is possible; without them, spins are not seen. PAUSE exits no further apart than
    /// `spin_gap` are one spin.
    pub fn new(spin_gap: Duration) -> Observer {
        let probe = Probe::attach_with_spin_times(spin_gap.as_nanos() as u64);
        let blind = probe.as_ref().err().map(|e| format!("{e:#}"));
        Observer { start: Instant::now(), probe: probe.ok(), blind, client: None }
    }

    /// Looks at everything.
    ///
    /// # Errors
    /// The kernel cannot read its own maps.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let mut snapshot = Snapshot {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            scheduler: preflight::loaded().map_or_else(|| "EEVDF".into(), short_name),
            ..Snapshot::default()
        };
        let spins = self.probe.as_ref().map(Probe::spin_times).transpose()?.unwrap_or_default();
        let counts = self.probe.as_ref().map(Probe::read).transpose()?.unwrap_or_default();
        snapshot.at_ns = self.start.elapsed().as_nanos() as u64;
        for (pid, threads) in vms::find() {
            let mut vm = VmCounters { name: vm_name(pid as u32), ..VmCounters::default() };
            if let Some(kvm) = counts.get(&pid) {
                (vm.yields_tried, vm.yields_ok) = (kvm.yield_tried, kvm.yield_ok);
            }
            vm.vcpus = vcpus(pid, &threads, &spins);
            snapshot.vms.insert(pid, vm);
        }
        if snapshot.scheduler.starts_with("overbook") {
            snapshot.overbook = self.ask();
        }
        Ok(snapshot)
    }

    /// What `overbook host` has counted; nothing if it has just gone, or is the guest's.
    fn ask(&mut self) -> Option<HostStats> {
        if self.client.is_none() {
            self.client = StatsClient::new().connect(None).ok();
        }
        let answer = self.client.as_mut()?.request("stats", Vec::new());
        if answer.is_err() {
            self.client = None;
        }
        answer.ok()
    }
}

/// Our own scheduler's name ends with its version and target.
fn short_name(name: String) -> String {
    if name.starts_with("overbook") { "overbook".into() } else { name }
}

fn vcpus(pid: i32, threads: &Threads, spins: &BTreeMap<i32, SpinTime>) -> BTreeMap<u32, VcpuCounters> {
    let one = |(id, tid): (&u32, &i32)| {
        let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        let mut words = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let spun = spins.get(tid).copied().unwrap_or_default();
        let vcpu = VcpuCounters {
            tid: *tid,
            run_ns: words.next()?,
            wait_ns: words.next()?,
            spin_ns: spun.spin_ns,
            spins: spun.spins,
        };
        Some((*id, vcpu))
    };
    threads.iter().filter_map(one).collect()
}

/// Reads snapshots that were recorded, a line of JSON each.
///
/// # Errors
/// The file cannot be read, or a line is none; the message names it.
pub fn read_recording(file: &std::path::Path) -> Result<Vec<Snapshot>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read recording {}", file.display()))?;
    let lines = text.lines().enumerate();
    lines
        .map(|(n, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("{}:{}: not a recorded snapshot", file.display(), n + 1))
        })
        .collect()
}
