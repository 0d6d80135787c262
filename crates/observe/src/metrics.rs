// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers' counters for Prometheus, in the OpenMetrics format. Names and units are in docs/metrics.md.

use crate::seen::{self, Labels};
use crate::snapshot::{PATIENCE_MS, Snapshot};
use anyhow::{Context, Result};
use overbook_guest::stats::GuestStats;
use overbook_scheduler::client::Served;
use overbook_scheduler::stats::{ClassStats, HostStats, TierStats, VmStats};
use overbook_vms::names::Identity;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use scx_stats::prelude::StatsClient;
use serde_json::Value;
use std::fmt;

const NONE: &str = "no scheduler of ours is running on this machine";

/// What the scheduler of this machine has counted.
#[derive(Clone, Debug)]
pub enum Counted {
    /// `overbook host`.
    Host(Box<HostStats>),
    /// `overbook guest`.
    Guest(Box<GuestStats>),
}

impl Counted {
    /// Asks the scheduler that runs.
    ///
    /// # Errors
    /// None of ours does, or it does not answer.
    pub fn ask() -> Result<Counted> {
        let mut client = StatsClient::new().connect(Some(PATIENCE_MS)).context(NONE)?;
        Counted::of(client.request("stats", Vec::new())?)
    }

    /// Others' schedulers serve statistics in the same place.
    fn of(answer: Value) -> Result<Counted> {
        if answer.get("nr_preferred").is_some() {
            return Ok(Counted::Guest(serde_json::from_value(answer)?));
        }
        let host: HostStats = serde_json::from_value(answer).context(NONE)?;
        Ok(Counted::Host(Box::new(host.ours().context(NONE)?)))
    }

    /// Writes it; `seen` knows the VMs' names.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn encode(&self, seen: Option<&Snapshot>, to: &mut DescriptorEncoder) -> fmt::Result {
        match self {
            Counted::Host(stats) => host(stats, seen, to),
            Counted::Guest(stats) => guest(stats, to),
        }
    }
}

type Column<S> = (&'static str, &'static str, fn(&S) -> u64);

const HOST: [Column<HostStats>; 13] = [
    ("overbook_host_tasks_direct", "tasks sent straight to an idle CPU", |s| s.direct),
    ("overbook_host_tasks_queued", "tasks put into a queue", HostStats::queued),
    ("overbook_host_tasks_parked", "tasks parked, as their group has used its cpu.max", |s| s.parked),
    ("overbook_host_preemptions", "running tasks preempted by one that woke up", |s| s.preempt),
    (
        "overbook_host_slices_extended",
        "slices extended although others waited, as none was due earlier",
        |s| s.keep,
    ),
    ("overbook_host_turns_extended", "old name of overbook_host_slices_extended", |s| s.keep),
    (
        "overbook_host_slices_overstayed",
        "slices of vCPUs extended although others were due, as all of these could wait",
        |s| s.overstay,
    ),
    (
        "overbook_host_tasks_from_other_llc",
        "tasks pulled from another LLC's queue by a CPU that had nothing else",
        |s| s.pulled,
    ),
    (
        "overbook_host_tasks_balanced",
        "tasks pulled from another LLC's queue, as more was owed to them there",
        |s| s.balance,
    ),
    (
        "overbook_host_tasks_spread",
        "running tasks sent to another CPU, as who waited for theirs may use few",
        |s| s.spread,
    ),
    ("overbook_host_overdue", "tasks that had waited for too long and went before others", |s| s.overdue),
    (
        "overbook_host_in_rcu",
        "tasks queued before others, as they were preempted inside an RCU read section",
        |s| s.in_rcu,
    ),
    ("overbook_host_idle_overdue", "SCHED_IDLE tasks that went before others", |s| s.idle_overdue),
];

const VM: [Column<VmStats>; 7] = [
    ("overbook_vm_yields_asked", "directed yields that KVM asked for", |s| s.asked),
    ("overbook_vm_yields_spared", "directed yields after which the vCPU kept its CPU", |s| s.spared),
    ("overbook_vm_yields_delivered", "spins after which the CPU went on with a sibling", |s| s.delivered),
    ("overbook_vm_spins_unheard", "spins for which KVM found nobody to yield to", |s| s.unheard),
    ("overbook_vm_spins_gave_up", "spins after which the CPU went to whoever was next", |s| s.gave_up),
    ("overbook_vm_ipis", "IPIs between vCPUs that were seen", |s| s.ipis),
    ("overbook_vm_eois", "ends of interrupts that were seen", |s| s.eois),
];

/// In ns, shown in seconds.
const VM_TIMES: [Column<VmStats>; 1] =
    [("overbook_vm_spin", "time that the vCPUs burnt in spins", |s| s.spin_ns)];

/// In ns, shown in seconds; it grows, but is no sum.
const VM_LONGEST: Column<VmStats> =
    ("overbook_vm_longest_wait", "longest time that a vCPU could run and had no CPU", |s| s.longest_ns);

/// Which class a VM has: a series of its own, so that no other breaks off where that changes.
const VM_CLASS: (&str, &str) = ("overbook_vm_class", "always 1; label class has the VM's");

/// Gauges by class, each with its unit and what its number is divided by.
const CLASS: [(Column<ClassStats>, Option<Unit>, f64); 3] = [
    (("overbook_class_vms", "VMs of this class that run", |s| s.vms), None, 1.0),
    (
        (
            "overbook_class_longest_wait",
            "longest time that a vCPU of this class could run and had no CPU",
            |s| s.longest_ns,
        ),
        Some(Unit::Seconds),
        1e9,
    ),
    (
        ("overbook_class_promise", "longest such time that is promised", |s| s.promise_ns),
        Some(Unit::Seconds),
        1e9,
    ),
];

const CLASS_BROKEN: Column<ClassStats> = (
    "overbook_class_promises_broken",
    "times that a vCPU of this class could run and had no CPU for longer than is promised",
    |s| s.broken,
);

const TIER: [Column<TierStats>; 1] =
    [("overbook_vm_tier_picked", "vCPUs picked, by what they were worth most for", |s| s.picked)];

const GUEST: [Column<GuestStats>; 9] = [
    ("overbook_guest_samples", "periods of the steal monitor", |s| s.samples),
    ("overbook_guest_shrinks", "times that CPUs lost preference", |s| s.shrinks),
    ("overbook_guest_grows", "times that CPUs were preferred again", |s| s.grows),
    ("overbook_guest_tasks_pushed", "running tasks moved off a CPU that had lost preference", |s| s.pushed),
    ("overbook_guest_tasks_outside", "tasks queued on a CPU that is not preferred", |s| s.outside),
    ("overbook_guest_interrupts_followed", "times that interrupts were told to follow", |s| s.followed),
    ("overbook_guest_tasks_direct", "tasks sent straight to an idle CPU", |s| s.direct),
    ("overbook_guest_tasks_queued", "tasks put into a queue", |s| s.queued),
    ("overbook_guest_preemptions", "running tasks preempted by one that woke up", |s| s.preempt),
];

/// Gauges, each with what its number is divided by.
const GUEST_NOW: [(Column<GuestStats>, f64); 8] = [
    (("overbook_guest_scheduling", "1 while it keeps tasks on some CPUs, else 0", |s| s.scheduling), 1.0),
    (("overbook_guest_cpus_online", "online CPUs", |s| s.nr_online), 1.0),
    (("overbook_guest_cpus_preferred", "preferred CPUs", |s| s.nr_preferred), 1.0),
    (
        (
            "overbook_guest_steal_ratio",
            "steal in the last period, of the time of all CPUs that are not isolated",
            |s| s.steal,
        ),
        10_000.0,
    ),
    (
        (
            "overbook_guest_cpus_used",
            "CPUs' worth of time had in the last period, but for isolated ones",
            |s| s.used,
        ),
        100.0,
    ),
    (
        ("overbook_guest_cpus_told", "CPUs that the host says it can give; 0: it says nothing", |s| s.told),
        100.0,
    ),
    (
        (
            "overbook_guest_cpus_used_outside",
            "CPUs' worth of time had in the last period on CPUs that are not preferred",
            |s| s.used_outside,
        ),
        100.0,
    ),
    (
        (
            "overbook_guest_real_time_outside",
            "real-time tasks last seen on CPUs that are not preferred",
            |s| s.real_time,
        ),
        1.0,
    ),
];

fn host(stats: &HostStats, seen: Option<&Snapshot>, to: &mut DescriptorEncoder) -> fmt::Result {
    let labels = [("settings", stats.settings.as_str()), ("visible", stats.visible.as_str())];
    let mut family = to.encode_descriptor("overbook_host", "the host scheduler", None, MetricType::Gauge)?;
    ConstGauge::new(1u64).encode(family.encode_family(&labels)?)?;
    for (name, help, of) in HOST {
        let family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(of(stats)).encode(family)?;
    }
    // One that has ended has no name that stays: its process may be another one's by now. Of one that has just come the
    // scheduler knows a name.
    let alive = stats.vms.iter().filter(|(_, vm)| vm.alive != 0);
    let named: Vec<(u32, &VmStats, Identity)> =
        alive.map(|(pid, vm)| (*pid, vm, who(*pid, vm, seen))).collect();
    let vms: Vec<(Labels, &VmStats)> =
        named.iter().map(|(pid, vm, who)| (Labels::of((*pid).into(), who), *vm)).collect();
    for (name, help, of) in VM {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, vm) in &vms {
            ConstCounter::new(of(vm)).encode(family.encode_family(&labels.vm())?)?;
        }
    }
    for (name, help, of) in VM_TIMES {
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (labels, vm) in &vms {
            ConstCounter::new(of(vm) as f64 / 1e9).encode(family.encode_family(&labels.vm())?)?;
        }
    }
    let (name, help, of) = VM_LONGEST;
    let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for (labels, vm) in &vms {
        ConstGauge::new(of(vm) as f64 / 1e9).encode(family.encode_family(&labels.vm())?)?;
    }
    let (name, help) = VM_CLASS;
    let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, vm) in vms.iter().filter(|(_, vm)| !vm.class.is_empty()) {
        ConstGauge::new(1u64).encode(family.encode_family(&labels.part("class", &vm.class))?)?;
    }
    for ((name, help, of), unit, divisor) in &CLASS {
        let mut family = to.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (class, counts) in &stats.classes {
            let labels = [("class", class.as_str())];
            ConstGauge::new(of(counts) as f64 / divisor).encode(family.encode_family(&labels)?)?;
        }
    }
    let (name, help, of) = CLASS_BROKEN;
    let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (class, counts) in &stats.classes {
        ConstCounter::new(of(counts)).encode(family.encode_family(&[("class", class.as_str())])?)?;
    }
    for (name, help, of) in TIER {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, vm) in &vms {
            for (tier, counts) in &vm.tiers {
                ConstCounter::new(of(counts)).encode(family.encode_family(&labels.part("tier", tier))?)?;
            }
        }
    }
    Ok(())
}

fn who(pid: u32, vm: &VmStats, seen: Option<&Snapshot>) -> Identity {
    let known = seen.and_then(|seen| seen.vms.get(&(pid as i32)));
    known.map_or_else(|| Identity { name: vm.name.clone(), ..Identity::default() }, |vm| vm.who.clone())
}

fn guest(stats: &GuestStats, to: &mut DescriptorEncoder) -> fmt::Result {
    let labels = [("governor", stats.governor.as_str()), ("interrupts", stats.interrupts.as_str())];
    let mut family =
        to.encode_descriptor("overbook_guest", "the guest scheduler", None, MetricType::Gauge)?;
    ConstGauge::new(1u64).encode(family.encode_family(&labels)?)?;
    for (name, help, of) in GUEST {
        let family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(of(stats)).encode(family)?;
    }
    for ((name, help, of), divisor) in GUEST_NOW {
        let family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(of(stats) as f64 / divisor).encode(family)?;
    }
    Ok(())
}

/// Names of all metrics as scrapers see them, to check dashboards and docs against.
pub fn names() -> Vec<String> {
    let total = |name: &str| format!("{name}_total");
    let mut names = seen::names();
    names.extend(["overbook_host".to_string(), "overbook_guest".to_string()]);
    names.extend(HOST.iter().map(|(name, ..)| total(name)));
    names.extend(VM.iter().map(|(name, ..)| total(name)));
    names.extend(VM_TIMES.iter().map(|(name, ..)| total(&format!("{name}_seconds"))));
    names.push(format!("{}_seconds", VM_LONGEST.0));
    names.push(VM_CLASS.0.into());
    names.extend(CLASS.iter().map(|((name, ..), unit, _)| match unit {
        Some(unit) => format!("{name}_{}", unit.as_str()),
        None => (*name).to_string(),
    }));
    names.push(total(CLASS_BROKEN.0));
    names.extend(TIER.iter().map(|(name, ..)| total(name)));
    names.extend(GUEST.iter().map(|(name, ..)| total(name)));
    names.extend(GUEST_NOW.iter().map(|((name, ..), _)| name.to_string()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporter::Served;
    use crate::snapshot::{VcpuCounters, VmCounters};
    use overbook_vms::names::Stack;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    /// A host with a VM whose name needs escaping.
    fn host_stats() -> HostStats {
        let tiers = BTreeMap::from([("interrupt".to_string(), TierStats { picked: 2 })]);
        let vm = VmStats {
            name: "web \"1\"\\".into(),
            class: "latency".into(),
            alive: 1,
            spin_ns: 1_500_000_000,
            longest_ns: 125_000_000,
            tiers,
            ..VmStats::default()
        };
        HostStats {
            settings: "slice-us=3000".into(),
            direct: 7,
            classes: BTreeMap::from([(
                "latency".to_string(),
                ClassStats { vms: 1, longest_ns: 62_500_000, promise_ns: 2_000_000_000, broken: 5 },
            )]),
            vms: BTreeMap::from([(42, vm)]),
            ..HostStats::default()
        }
    }

    #[test]
    fn what_another_scheduler_answers_is_not_ours() {
        let ours = serde_json::to_value(host_stats()).unwrap();
        assert!(matches!(Counted::of(ours), Ok(Counted::Host(_))));
        for other in [serde_json::json!({ "at": 1, "nr_dispatched": 7 }), serde_json::json!([1])] {
            let why = format!("{:#}", Counted::of(other).unwrap_err());
            assert!(why.starts_with("no scheduler of ours"), "{why}");
        }
    }

    /// The same VM from outside, with what its operators know of it.
    fn seen() -> Snapshot {
        let who = Identity {
            name: "web \"1\"\\".into(),
            namespace: "shop".into(),
            id: "100".into(),
            stack: Stack::Proxmox,
        };
        let vcpu = |wait_ns| VcpuCounters { run_ns: 1_250_000_000, wait_ns, ..VcpuCounters::default() };
        let vcpus = BTreeMap::from([(0, vcpu(500_000_000)), (1, vcpu(250_000_000))]);
        let vms = BTreeMap::from([(42, VmCounters { who, vcpus, ..VmCounters::default() })]);
        Snapshot { cpus: 4, scheduler: "overbook".into(), loads: Some(3), vms, ..Snapshot::default() }
    }

    fn both() -> [Served; 2] {
        let guest =
            GuestStats { governor: "step".into(), steal: 1250, nr_online: 4, ..GuestStats::default() };
        [
            Served {
                seen: Some(seen()),
                counted: Some(Counted::Host(Box::new(host_stats()))),
                ..Served::default()
            },
            Served { counted: Some(Counted::Guest(Box::new(guest))), ..Served::default() },
        ]
    }

    #[test]
    fn figures_are_in_base_units() {
        let [host, guest] = both().map(|served| served.text().unwrap());
        let labels = "vm=\"web \\\"1\\\"\\\\\",namespace=\"shop\",stack=\"proxmox\",id=\"100\",pid=\"42\"";
        for line in [
            format!("overbook_vm_run_seconds_total{{{labels}}} 2.5\n"),
            format!("overbook_vm_ready_seconds_total{{{labels}}} 0.75\n"),
            format!("overbook_vcpu_ready_seconds_total{{{labels},vcpu=\"1\"}} 0.25\n"),
            format!("overbook_vm_spin_seconds_total{{{labels}}} 1.5\n"),
            format!("overbook_vm_longest_wait_seconds{{{labels}}} 0.125\n"),
            format!("overbook_vm_class{{{labels},class=\"latency\"}} 1\n"),
            "overbook_class_vms{class=\"latency\"} 1".into(),
            "overbook_class_longest_wait_seconds{class=\"latency\"} 0.0625\n".into(),
            "overbook_class_promise_seconds{class=\"latency\"} 2".into(),
            "overbook_class_promises_broken_total{class=\"latency\"} 5\n".into(),
            "overbook_scheduler_loaded 1\n".into(),
            "overbook_scheduler_loads_total 3\n".into(),
        ] {
            assert!(host.contains(&line), "{line}{host}");
        }
        assert!(host.contains("overbook_host_tasks_direct_total 7\n"));
        assert!(guest.contains("overbook_guest_steal_ratio 0.125\n"), "{guest}");
    }

    /// Without a scheduler all that is seen from outside is still there.
    #[test]
    fn ready_time_needs_no_scheduler() {
        let eevdf = Snapshot { scheduler: "EEVDF".into(), loads: None, ..seen() };
        let text = Served { seen: Some(eevdf), ..Served::default() }.text().unwrap();
        assert!(
            text.contains("overbook_scheduler_loaded 0\n") && text.contains("{name=\"EEVDF\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("overbook_vcpu_ready_seconds_total{") && !text.contains("overbook_host"),
            "{text}"
        );
    }

    /// A VM that the scheduler knows and nobody sees any more has the name that it had.
    #[test]
    fn a_vm_that_has_gone_keeps_its_name() {
        let counted = Some(Counted::Host(Box::new(host_stats())));
        let text = Served { seen: Some(Snapshot::default()), counted, ..Served::default() }.text().unwrap();
        assert!(
            text.contains("overbook_vm_spin_seconds_total{vm=\"web \\\"1\\\"\\\\\",namespace=\"\""),
            "{text}"
        );
    }

    #[test]
    fn every_name_is_served_and_documented_and_the_dashboard_knows_no_other() {
        let text: String = both().iter().map(|served| served.text().unwrap()).collect();
        let served: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        let names = names();
        assert_eq!(served, names.iter().map(String::as_str).collect());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
        for name in &names {
            assert!(docs.contains(&format!("`{name}`")), "docs/metrics.md does not name {name}");
        }
        for file in ["packaging/grafana/overbook.json", "packaging/prometheus/overbook.rules.yml"] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
            let used: Vec<&str> = words.filter(|word| word.starts_with("overbook_")).collect();
            assert!(used.len() > 5, "{file}: {used:?}");
            let unknown = used.iter().find(|word| !names.iter().any(|name| name == *word));
            assert_eq!(unknown, None, "{file} asks for what is not served");
        }
    }

    /// Prometheus' own parser of its format, from Debian's python3-prometheus-client.
    #[test]
    fn prometheus_parses_it() {
        for served in both() {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), served.text().unwrap()).unwrap();
            let program = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                           print(sum(len(f.samples) for f in parse(open(sys.argv[1]).read())))";
            let output = std::process::Command::new("/usr/bin/python3")
                .args(["-c", program])
                .arg(file.path())
                .output()
                .expect("python3 runs: `make setup` installs it");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "`make setup` installs the parser: {error}");
            let samples: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
            assert!(samples > 10, "{samples}");
        }
    }
}
