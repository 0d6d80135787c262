// SPDX-License-Identifier: GPL-2.0-only
//! All counters at one moment.

use crate::recording::read_lines;
use crate::vms::{self, Threads};
use anyhow::Result;
use overbook_cli::cpulist;
use overbook_probe::Probe;
use overbook_scheduler::client::Served;
use overbook_scheduler::preflight;
use overbook_scheduler::stats::HostStats;
use overbook_scheduler::times::{STAT, Times, tick_ns};
use overbook_vms::names::{self, Identity};
use scx_stats::prelude::StatsClient;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
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
    /// Spinning until KVM was told, ns; since the probes were attached. Nothing without probes, as all that KVM does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_ns: Option<u64>,
    /// PAUSE exits that KVM took for spinning; since the probes were attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spins: Option<u64>,
}

impl VcpuCounters {
    /// Of a thread, before anything is read.
    fn of(tid: i32) -> VcpuCounters {
        VcpuCounters { tid, ..VcpuCounters::default() }
    }

    /// Reads when it ran and waited; nothing if the thread has ended.
    fn read_times(&mut self, pid: i32) -> Option<()> {
        let schedstat = fs::read_to_string(format!("/proc/{pid}/task/{}/schedstat", self.tid)).ok()?;
        let mut words = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
        (self.run_ns, self.wait_ns) = (words.next()?, words.next()?);
        Some(())
    }
}

/// One VM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VmCounters {
    /// As its operators know it: `namespace/name`, or the name.
    pub name: String,
    /// The same in its parts, and who manages it. Older recordings have none.
    #[serde(default)]
    pub who: Identity,
    /// By vCPU id.
    pub vcpus: BTreeMap<u32, VcpuCounters>,
    /// Directed yields that KVM tried, and that the scheduler accepted; since the probes were attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields_tried: Option<u64>,
    /// See `yields_tried`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields_ok: Option<u64>,
}

/// Whether it could be seen what KVM does: spins and directed yields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// The recording does not say.
    #[default]
    Untold,
    /// By probes.
    Probes,
    /// Not at all, and why.
    Blind(String),
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
    /// sched_ext schedulers that were loaded since the kernel has booted; nothing without sched_ext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loads: Option<u64>,
    /// CPU time of all that ran here since boot, or was stolen from here, ns; VMs are in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// By process.
    pub vms: BTreeMap<i32, VmCounters>,
    /// What `overbook host` has counted, if it runs.
    pub overbook: Option<HostStats>,
    /// Whether spins and directed yields could be seen.
    #[serde(default)]
    pub sight: Sight,
}

impl Snapshot {
    /// Whether it is later than another of the same recording: in a file of several, time starts anew.
    pub fn goes_on_from(&self, before: &Snapshot) -> bool {
        self.at_ns > before.at_ns
    }

    /// Takes out of its words what acts on a terminal: a recording may be from anybody.
    fn clean(&mut self) {
        let clean = |text: &mut String| *text = names::shown(text);
        clean(&mut self.scheduler);
        if let Sight::Blind(why) = &mut self.sight {
            clean(why);
        }
        for vm in self.vms.values_mut() {
            [&mut vm.name, &mut vm.who.name, &mut vm.who.namespace, &mut vm.who.id]
                .into_iter()
                .for_each(clean);
        }
        if let Some(stats) = &mut self.overbook {
            stats.clean(clean);
        }
    }

    /// What /proc and /sys tell, without a probe; spins and yields are not known.
    pub fn from_outside() -> Snapshot {
        let mut snapshot = Snapshot::with_all_vms();
        snapshot.read_times();
        snapshot
    }

    /// Who is there, which takes a while: no time is read yet.
    fn with_all_vms() -> Snapshot {
        let loads = fs::read_to_string("/sys/kernel/sched_ext/enable_seq").ok();
        let vm = |(pid, threads): (i32, Threads)| {
            let who = names::of(pid as u32);
            let vcpus = threads.iter().map(|(id, tid)| (*id, VcpuCounters::of(*tid))).collect();
            (pid, VmCounters { name: who.to_string(), who, vcpus, ..VmCounters::default() })
        };
        Snapshot {
            cpus: online_cpus(),
            scheduler: preflight::loaded().map_or_else(|| "EEVDF".into(), short_name),
            loads: loads.and_then(|text| text.trim().parse().ok()),
            vms: vms::find().into_iter().map(vm).collect(),
            sight: Sight::Blind("nobody has looked".into()),
            ..Snapshot::default()
        }
    }

    /// Reads the times of all vCPUs, one after the other at once. Those that have ended go.
    fn read_times(&mut self) {
        for (pid, vm) in &mut self.vms {
            vm.vcpus.retain(|_, vcpu| vcpu.read_times(*pid).is_some());
        }
    }

    /// Why spins cannot be seen, if so.
    pub fn blind(&self) -> Option<&str> {
        match &self.sight {
            Sight::Blind(why) => Some(why),
            _ => None,
        }
    }

    /// Whether anything was counted that only probes see.
    fn is_seeing(&self) -> bool {
        let mut vcpus = self.vms.values().flat_map(|vm| vm.vcpus.values());
        vcpus.any(|vcpu| vcpu.spins > Some(0)) || self.vms.values().any(|vm| vm.yields_tried > Some(0))
    }

    /// Forgets counters that nobody has counted.
    fn forget(&mut self, why: &str) {
        self.sight = Sight::Blind(why.into());
        for vm in self.vms.values_mut() {
            (vm.yields_tried, vm.yields_ok) = (None, None);
            for vcpu in vm.vcpus.values_mut() {
                (vcpu.spins, vcpu.spin_ns) = (None, None);
            }
        }
    }
}

/// Online CPUs of the host, whatever this process may use of them: in a container, less.
pub fn online_cpus() -> u32 {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let known = cpulist::parse(&list).map(|cpus| cpus.len()).ok().filter(|cpus| *cpus > 0);
    known.or_else(|| Some(std::thread::available_parallelism().ok()?.get())).unwrap_or(1) as u32
}

/// Longest wait for a scheduler's answer, in ms: one that is stopped gives none.
pub(crate) const PATIENCE_MS: u64 = 5000;

/// Takes snapshots.
pub struct Observer {
    start: Option<Instant>,
    /// Or why there are none.
    probe: Result<Probe, String>,
    client: Option<StatsClient>,
}

impl Observer {
    /// Attaches the probes if this is possible; without them, spins are not seen. PAUSE exits no further apart than
    /// `spin_gap` are one spin.
    pub fn new(spin_gap: Duration) -> Observer {
        let probe = Probe::attach_with_spin_times(spin_gap.as_nanos() as u64).map_err(|e| format!("{e:#}"));
        Observer { start: None, probe, client: None }
    }

    /// Looks at everything.
    ///
    /// # Errors
    /// The kernel cannot read its own maps.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::with_all_vms();
        // Beside vCPUs that contend, whatever comes between this and what is counted may take a while.
        // A recording is known by its beginning with 0.
        snapshot.at_ns = self.start.map_or(0, |start| start.elapsed().as_nanos() as u64);
        self.start = self.start.or_else(|| Some(Instant::now()));
        snapshot.read_times();
        snapshot.busy_ns = Times::of_machine(&fs::read_to_string(STAT).unwrap_or_default(), tick_ns())
            .map(|of| of.busy_ns());
        let probe = self.probe.as_ref().ok();
        let spins = probe.map(Probe::spin_times).transpose()?.unwrap_or_default();
        let counts = probe.map(Probe::read).transpose()?.unwrap_or_default();
        if let Some(probe) = probe {
            // One that has just begun is not among the VMs yet.
            let is_gone = |pid: &i32| !Path::new(&format!("/proc/{pid}")).exists();
            let gone: Vec<i32> = counts.keys().copied().filter(is_gone).collect();
            probe.forget(&gone)?;
        }
        for (pid, vm) in &mut snapshot.vms {
            let kvm = counts.get(pid).cloned().unwrap_or_default();
            (vm.yields_tried, vm.yields_ok) = (Some(kvm.yield_tried), Some(kvm.yield_ok));
            for vcpu in vm.vcpus.values_mut() {
                let spun = spins.get(&vcpu.tid).copied().unwrap_or_default();
                (vcpu.spin_ns, vcpu.spins) = (Some(spun.spin_ns), Some(spun.spins));
            }
        }
        if snapshot.scheduler.starts_with("overbook") {
            snapshot.overbook = self.ask();
        }
        match &self.probe {
            Ok(_) => snapshot.sight = Sight::Probes,
            Err(why) => snapshot.forget(why),
        }
        Ok(snapshot)
    }

    /// What `overbook host` has counted, of VMs that are there; nothing if it has just gone, does not answer, or is the
    /// guest's.
    fn ask(&mut self) -> Option<HostStats> {
        if self.client.is_none() {
            self.client = StatsClient::new().connect(Some(PATIENCE_MS)).ok();
        }
        let answer: Result<HostStats> = self.client.as_mut()?.request("stats", Vec::new());
        if answer.is_err() {
            self.client = None;
        }
        let mut stats = answer.ok()?.ours().ok()?;
        stats.vms.retain(|_, vm| vm.alive > 0);
        Some(stats)
    }
}

/// Our own scheduler's name ends with its version and target.
fn short_name(name: String) -> String {
    if name.starts_with("overbook") { "overbook".into() } else { name }
}

/// Reads snapshots that were recorded, a line of JSON each.
///
/// # Errors
/// The file cannot be read, or a line is none; the message names it.
pub fn read_recording(file: &Path) -> Result<Vec<Snapshot>> {
    let mut snapshots = read_lines(file)?;
    snapshots.iter_mut().for_each(Snapshot::clean);
    // A recording that does not say whether there were probes tells it where they counted something.
    let seeing = snapshots.iter().any(Snapshot::is_seeing);
    for vm in snapshots.iter_mut().flat_map(|snapshot| snapshot.vms.values_mut()) {
        if vm.who.name.is_empty() {
            vm.who.name = vm.name.clone();
        }
    }
    for snapshot in snapshots.iter_mut().filter(|s| s.sight == Sight::Untold) {
        match seeing {
            true => snapshot.sight = Sight::Probes,
            false => snapshot.forget("the recording does not say whether there were probes, and has no spin"),
        }
    }
    Ok(snapshots)
}

/// Where each recording in a file begins: in a file of several, time starts anew.
pub fn beginnings(snapshots: &[Snapshot]) -> Vec<usize> {
    let anew = |n: &usize| *n == 0 || !snapshots[*n].goes_on_from(&snapshots[n - 1]);
    (0..snapshots.len()).filter(anew).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_scheduler::stats::{ClassStats, TierStats, VmStats};

    /// Also if the first had one snapshot, as its writer was killed at once.
    #[test]
    fn a_recording_begins_where_time_does_not_go_on() {
        let at = |at_ns| Snapshot { at_ns, ..Snapshot::default() };
        assert_eq!(beginnings(&[0, 0, 7, 9, 0].map(at)), [0, 1, 4]);
        let mut observer = Observer::new(Duration::from_micros(20));
        let times = [(); 2].map(|()| observer.snapshot().unwrap().at_ns);
        assert!(times[0] == 0 && times[1] > 0, "{times:?}");
    }

    #[test]
    fn cpus_are_the_hosts_whatever_this_process_may_use() {
        // A thread of its own, as it stays bound.
        let bound = std::thread::spawn(|| {
            let mut one = nix::sched::CpuSet::new();
            let mine = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
            one.set((0..nix::sched::CpuSet::count()).find(|cpu| mine.is_set(*cpu).unwrap()).unwrap())
                .unwrap();
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).unwrap();
            Snapshot::from_outside().cpus as usize
        });
        let stat = fs::read_to_string(STAT).unwrap();
        let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        assert_eq!(bound.join().unwrap(), lines.count());
    }

    #[test]
    fn a_file_may_hold_several_recordings() {
        let at = |at_ns| Snapshot { at_ns, ..Snapshot::default() };
        assert_eq!(beginnings(&[at(5), at(9), at(3), at(7), at(8)]), [0, 2]);
        assert!(beginnings(&[]).is_empty());
    }

    fn recorded(text: &str) -> Vec<Snapshot> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recording");
        fs::write(&file, text).unwrap();
        read_recording(&file).unwrap()
    }

    /// As they were written before there was a word on probes.
    fn untold(spins: u64) -> String {
        format!(
            r#"{{"at_ns":1,"cpus":4,"scheduler":"EEVDF","vms":{{"7":{{"name":"a","vcpus":{{"0":{{"tid":8,"run_ns":5,"wait_ns":6,"spin_ns":{spins},"spins":{spins}}}}},"yields_tried":0,"yields_ok":0}}}},"overbook":null}}"#
        )
    }

    #[test]
    fn recordings_without_a_word_on_probes_are_read_and_believed_where_they_counted() {
        let seen = &recorded(&untold(3))[0];
        assert_eq!((seen.blind(), seen.vms[&7].vcpus[&0].spins), (None, Some(3)));
        let unseen = &recorded(&untold(0))[0];
        assert!(unseen.blind().is_some());
        assert_eq!((unseen.vms[&7].vcpus[&0].spins, unseen.vms[&7].yields_tried), (None, None));
        // One of several is enough.
        assert!(recorded(&format!("{}\n{}\n", untold(0), untold(1))).iter().all(|s| s.blind().is_none()));
    }

    #[test]
    fn what_acts_on_a_terminal_is_taken_out() {
        let mut snapshot = recorded(&untold(3)).remove(0);
        let bad = "\u{1b}]0;x\u{7}\nall is well";
        let (vm, mut stats) = (snapshot.vms.get_mut(&7).unwrap(), HostStats::default());
        (vm.name, vm.who.id) = (bad.into(), bad.into());
        (stats.settings, stats.visible) = (bad.into(), bad.into());
        let mut ours = VmStats { name: bad.into(), class: bad.into(), ..VmStats::default() };
        ours.tiers.insert(bad.into(), TierStats::default());
        stats.vms.insert(7, ours);
        stats.classes.insert(bad.into(), ClassStats::default());
        (snapshot.scheduler, snapshot.overbook) = (bad.into(), Some(stats));
        snapshot.sight = Sight::Blind(bad.into());
        let read = &recorded(&serde_json::to_string(&snapshot).unwrap())[0];
        let text = serde_json::to_string(read).unwrap();
        // JSON writes control characters as escapes.
        assert!(text.contains("all is well") && !text.contains("\\u00") && !text.contains("\\n"), "{text}");
    }

    #[test]
    fn what_was_unknown_stays_unknown_in_a_file() {
        let mut snapshot = recorded(&untold(3)).remove(0);
        snapshot.forget("no root");
        let text = serde_json::to_string(&snapshot).unwrap();
        assert!(!text.contains("spin") && !text.contains("yields"), "{text}");
        assert_eq!(recorded(&text)[0].blind(), Some("no root"));
        // Nothing counted, but looked at.
        let mut idle = recorded(&untold(0)).remove(0);
        idle.sight = Sight::Probes;
        assert_eq!(recorded(&serde_json::to_string(&idle).unwrap())[0].blind(), None);
    }
}
