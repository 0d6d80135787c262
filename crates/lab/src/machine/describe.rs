// SPDX-License-Identifier: GPL-2.0-only
//! What machine this is, for the report.

use crate::machine::instrument::Clock;
use anyhow::Result;
use overbook_cli::cpulist;
use overbook_report::schema::MachineInfo;
use overbook_vmm::kvm::Kvm;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Scheduler's debugfs folder.
const SCHED_DEBUG: &str = "/sys/kernel/debug/sched";

/// CPUs that are online, ascending.
///
/// # Errors
/// sysfs is not mounted.
pub fn online_cpus() -> Result<Vec<u32>> {
    parse_cpus(&fs::read_to_string("/sys/devices/system/cpu/online")?)
}

/// CPUs of a list as the kernel writes it (`0-3,8`), in order; of the empty text none.
///
/// # Errors
/// See [`cpulist::parse`].
pub fn parse_cpus(list: &str) -> Result<Vec<u32>> {
    Ok(cpulist::parse(list)?.into_iter().map(|cpu| cpu as u32).collect())
}

/// Where `overbook guest` publishes preferred CPUs.
pub const PREFERRED: &str = "/run/overbook/preferred";

/// CPUs that `overbook guest` prefers, as it publishes them; none if it does not run.
pub fn preferred_cpus() -> Option<Vec<u32>> {
    parse_cpus(&fs::read_to_string(PREFERRED).ok()?).ok()
}

/// `enabled` while a sched_ext scheduler is loaded, else `disabled`, or on the way.
///
/// # Errors
/// The kernel has no sched_ext.
pub fn scheduler_state() -> Result<String> {
    Ok(fs::read_to_string("/sys/kernel/sched_ext/state")?.trim().to_string())
}

/// EEVDF's base slice as the kernel chose it; 0 if it cannot be read.
pub fn base_slice_ns() -> u64 {
    let text = fs::read_to_string(format!("{SCHED_DEBUG}/base_slice_ns")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Describes the running machine, executed by `accel` of `emulator`.
///
/// # Errors
/// sysfs or procfs is not mounted.
pub fn machine(accel: &str, emulator: &str, clock: &Clock) -> Result<MachineInfo> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let cpu_model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = online_cpus()?;
    let distinct = |file: &str| {
        let values: BTreeSet<String> = cpus
            .iter()
            .map(|cpu| {
                fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).unwrap_or_default()
            })
            .collect();
        values.len() as u32
    };
    let cores = distinct("topology/thread_siblings_list").max(1);
    let kvm = Kvm::detect();
    let parameters = |names: &[&str]| {
        let told = names.iter().filter_map(|name| Some(format!("{name}={}", kvm.parameter(name)?)));
        told.collect::<Vec<_>>().join(" ")
    };
    let ple = parameters(&["pause_filter_count", "pause_filter_thresh", "ple_window", "ple_gap"]);
    let ple = if ple.is_empty() { "not told".to_string() } else { ple };
    let apicv = parameters(&["avic", "enable_apicv", "enable_ipiv"]);
    // QEMU's own TCG has no filter: the lab forces its bits, and each PAUSE exits, whatever KVM set.
    let unfiltered = accel.starts_with("tcg")
        && kvm.is_there()
        && fs::read_to_string("/proc/cmdline")?.contains("setcpuid=pausefilter");
    Ok(MachineInfo {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        cpu_model: cpu_model.trim_start_matches([' ', '\t', ':']).into(),
        cpus: cpus.len() as u32,
        // Without an L3 every CPU would count for itself; the lab's machines always have one.
        llcs: distinct("cache/index3/shared_cpu_list").max(1),
        nodes: fs::read_dir("/sys/devices/system/node").map_or(1, |dir| {
            dir.flatten()
                .filter(|e| e.file_name().to_string_lossy().trim_start_matches("node").parse::<u32>().is_ok())
                .count() as u32
        }),
        smt: cpus.len() as u32 / cores,
        accel: accel.into(),
        emulator: emulator.into(),
        // A turn is two instructions.
        cpu_ips: 2e9 / clock.ns_per_turn,
        kvm_vendor: kvm.to_string(),
        ple: if unfiltered { format!("every PAUSE exits (emulated; {ple})") } else { ple },
        apicv,
        knobs: knobs(&cpus),
    })
}

fn knobs(cpus: &[u32]) -> BTreeMap<String, String> {
    let read =
        |path: String| fs::read_to_string(path).map(|v| v.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut knobs = BTreeMap::new();
    let mut put = |name: &str, path: String| {
        if let Ok(value) = read(path) {
            knobs.insert(name.to_string(), value);
        }
    };
    put("base_slice_ns", format!("{SCHED_DEBUG}/base_slice_ns"));
    put("sched_features", format!("{SCHED_DEBUG}/features"));
    put("cmdline", "/proc/cmdline".into());
    put("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource".into());
    put("halt_poll_ns", "/sys/module/kvm/parameters/halt_poll_ns".into());
    put("l3", format!("/sys/devices/system/cpu/cpu{}/cache/index3/shared_cpu_list", cpus[0]));
    knobs
}
