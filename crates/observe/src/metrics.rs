// SPDX-License-Identifier: GPL-2.0-only
//! The schedulers' counters for Prometheus, in the OpenMetrics format. Names and units are in docs/metrics.md.

use crate::scrape::{self, Answer};
use anyhow::{Context, Result};
use overbook_guest::stats::GuestStats;
use overbook_host::stats::{HostStats, TierStats, VmStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use scx_stats::prelude::StatsClient;
use serde_json::Value;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer serves everybody for so long: to count walks all VMs, and whoever reaches the port may ask at any rate.
const FRESH: Duration = Duration::from_secs(1);

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
    /// None of ours does.
    pub fn ask() -> Result<Counted> {
        let mut client =
            StatsClient::new().connect(None).context("no scheduler of ours is running on this machine")?;
        let answer: Value = client.request("stats", Vec::new())?;
        Ok(match answer.get("nr_preferred") {
            Some(_) => Counted::Guest(serde_json::from_value(answer)?),
            None => Counted::Host(serde_json::from_value(answer)?),
        })
    }

    /// As text for a scraper.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn text(&self) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

type Column<S> = (&'static str, &'static str, fn(&S) -> u64);

const HOST: [Column<HostStats>; 9] = [
    ("overbook_host_tasks_direct", "tasks sent straight to an idle CPU", |s| s.direct),
    ("overbook_host_tasks_queued", "tasks put into a queue", |s| {
        s.queued_llc + s.queued_pool + s.queued_cpu + s.queued_idle
    }),
    ("overbook_host_tasks_parked", "tasks parked, as their group has used its cpu.max", |s| s.parked),
    ("overbook_host_preemptions", "running tasks preempted by one that woke up", |s| s.preempt),
    ("overbook_host_turns_extended", "turns extended, since nobody waited who was due earlier", |s| s.keep),
    ("overbook_host_tasks_from_other_llc", "tasks taken from another LLC's queue", |s| s.steal_llc),
    ("overbook_host_overdue", "tasks that had waited for too long and went before others", |s| s.overdue),
    (
        "overbook_host_in_rcu",
        "tasks queued before others, as they were preempted inside an RCU read section",
        |s| s.in_rcu,
    ),
    ("overbook_host_idle_overdue", "SCHED_IDLE tasks that went before others", |s| s.idle_overdue),
];

const VM: [Column<VmStats>; 6] = [
    ("overbook_vm_yields_asked", "directed yields that KVM asked for", |s| s.asked),
    ("overbook_vm_yields_delivered", "directed yields after which the CPU went on with a sibling", |s| {
        s.delivered
    }),
    ("overbook_vm_spins_unheard", "spins for which KVM found nobody to yield to", |s| s.unheard),
    ("overbook_vm_spins_gave_up", "spinners that gave up their turn", |s| s.gave_up),
    ("overbook_vm_ipis", "IPIs between vCPUs that were seen", |s| s.ipis),
    ("overbook_vm_eois", "ends of interrupts that were seen", |s| s.eois),
];

/// In ns, shown in seconds.
const VM_TIMES: [Column<VmStats>; 3] = [
    ("overbook_vm_run", "time that the vCPUs ran", |s| s.run_ns),
    ("overbook_vm_queued", "time that the vCPUs were queued before they ran", |s| s.queued_ns),
    ("overbook_vm_spin", "time that the vCPUs burnt in spins", |s| s.spin_ns),
];

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
    (("overbook_guest_scheduling", "1 while it schedules, 0 while it stands by", |s| s.scheduling), 1.0),
    (("overbook_guest_cpus_online", "online CPUs", |s| s.nr_online), 1.0),
    (("overbook_guest_cpus_preferred", "preferred CPUs", |s| s.nr_preferred), 1.0),
    (("overbook_guest_steal_ratio", "steal in the last period, of all CPUs' time", |s| s.steal), 10_000.0),
    (("overbook_guest_cpus_used", "CPUs' worth of time had in the last period", |s| s.used), 100.0),
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

impl Collector for Counted {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        match self {
            Counted::Host(stats) => host(stats, &mut to),
            Counted::Guest(stats) => guest(stats, &mut to),
        }
    }
}

fn host(stats: &HostStats, to: &mut DescriptorEncoder) -> fmt::Result {
    let labels = [("settings", stats.settings.as_str()), ("visible", stats.visible.as_str())];
    let mut family = to.encode_descriptor("overbook_host", "the host scheduler", None, MetricType::Gauge)?;
    ConstGauge::new(1u64).encode(family.encode_family(&labels)?)?;
    for (name, help, of) in HOST {
        let family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(of(stats)).encode(family)?;
    }
    let pids: Vec<String> = stats.vms.keys().map(u32::to_string).collect();
    let vms: Vec<_> = stats.vms.values().zip(&pids).collect();
    for (name, help, of) in VM {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (vm, pid) in &vms {
            ConstCounter::new(of(vm)).encode(family.encode_family(&of_vm(vm, pid))?)?;
        }
    }
    for (name, help, of) in VM_TIMES {
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (vm, pid) in &vms {
            ConstCounter::new(of(vm) as f64 / 1e9).encode(family.encode_family(&of_vm(vm, pid))?)?;
        }
    }
    for (name, help, of) in TIER {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (vm, pid) in &vms {
            for (tier, counts) in &vm.tiers {
                let labels = [("vm", vm.name.as_str()), ("pid", pid), ("tier", tier)];
                ConstCounter::new(of(counts)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn of_vm<'a>(vm: &'a VmStats, pid: &'a str) -> impl EncodeLabelSet + 'a {
    [("vm", vm.name.as_str()), ("pid", pid)]
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

/// The last answer, for those who ask again soon.
struct Recent {
    answer: Option<(Instant, Result<String, String>)>,
}

impl Recent {
    /// The last answer if it is fresh, else what `ask` says.
    fn get(&mut self, now: Instant, ask: impl FnOnce() -> Result<String>) -> Result<String, String> {
        match &self.answer {
            Some((then, answer)) if now.saturating_duration_since(*then) < FRESH => answer.clone(),
            _ => {
                let answer = ask().map_err(|e| format!("{e:#}\n"));
                self.answer = Some((now, answer.clone()));
                answer
            }
        }
    }
}

/// Answers scrapers at `http://ADDRESS/metrics` for as long as the program runs.
///
/// # Errors
/// The address cannot be listened at.
pub fn serve(address: SocketAddr) -> Result<()> {
    let recent = Mutex::new(Recent { answer: None });
    scrape::serve(address, scrape::LIMITS, move |path| answer(path, &recent)).map(drop)
}

fn answer(path: &str, recent: &Mutex<Recent>) -> Answer {
    if path != "/metrics" {
        return Answer::plain(404, "metrics are at /metrics\n");
    }
    // Whoever asks meanwhile waits for this answer, and has it too.
    let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
    match recent.get(Instant::now(), || Counted::ask().and_then(|counted| counted.text())) {
        Ok(text) => {
            Answer { status: 200, kind: "application/openmetrics-text; version=1.0.0; charset=utf-8", text }
        }
        Err(why) => Answer::plain(503, why),
    }
}

/// Names of all metrics as scrapers see them, to check dashboards and docs against.
pub fn names() -> Vec<String> {
    let total = |name: &str| format!("{name}_total");
    let mut names = vec!["overbook_host".to_string(), "overbook_guest".to_string()];
    names.extend(HOST.iter().map(|(name, ..)| total(name)));
    names.extend(VM.iter().map(|(name, ..)| total(name)));
    names.extend(VM_TIMES.iter().map(|(name, ..)| total(&format!("{name}_seconds"))));
    names.extend(TIER.iter().map(|(name, ..)| total(name)));
    names.extend(GUEST.iter().map(|(name, ..)| total(name)));
    names.extend(GUEST_NOW.iter().map(|((name, ..), _)| name.to_string()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    /// A host with a VM whose name needs escaping.
    fn host_stats() -> HostStats {
        let tiers = BTreeMap::from([("receiver".to_string(), TierStats { picked: 2 })]);
        let vm = VmStats { name: "web \"1\"\\".into(), run_ns: 2_500_000_000, tiers, ..VmStats::default() };
        HostStats {
            settings: "slice-us=3000".into(),
            direct: 7,
            vms: BTreeMap::from([(42, vm)]),
            ..HostStats::default()
        }
    }

    fn both() -> [Counted; 2] {
        let guest =
            GuestStats { governor: "step".into(), steal: 1250, nr_online: 4, ..GuestStats::default() };
        [Counted::Host(Box::new(host_stats())), Counted::Guest(Box::new(guest))]
    }

    #[test]
    fn figures_are_in_base_units() {
        let [host, guest] = both().map(|counted| counted.text().unwrap());
        assert!(
            host.contains("overbook_vm_run_seconds_total{vm=\"web \\\"1\\\"\\\\\",pid=\"42\"} 2.5\n"),
            "{host}"
        );
        assert!(host.contains("overbook_host_tasks_direct_total 7\n"));
        assert!(guest.contains("overbook_guest_steal_ratio 0.125\n"), "{guest}");
    }

    #[test]
    fn other_paths_ask_nobody() {
        let recent = Mutex::new(Recent { answer: None });
        assert_eq!(answer("/", &recent).status, 404);
        assert!(recent.lock().unwrap().answer.is_none());
        // What was counted a moment ago is what everybody gets.
        recent.lock().unwrap().answer =
            Some((Instant::now() + Duration::from_secs(60), Ok("figures".into())));
        let same = answer("/metrics", &recent);
        assert_eq!((same.status, same.text.as_str()), (200, "figures"));
    }

    #[test]
    fn the_scheduler_is_asked_once_a_second_at_most() {
        let (start, mut recent, mut asked) = (Instant::now(), Recent { answer: None }, 0);
        let mut get = |ms: u64, answer: Result<String>| {
            let answer = recent.get(start + Duration::from_millis(ms), || {
                asked += 1;
                answer
            });
            (answer, asked)
        };
        assert_eq!(get(0, Ok("a".into())), (Ok("a".into()), 1));
        assert_eq!(get(999, Ok("b".into())), (Ok("a".into()), 1));
        assert_eq!(get(1000, Err(anyhow!("gone"))), (Err("gone\n".into()), 2));
        assert_eq!(get(1999, Ok("c".into())), (Err("gone\n".into()), 2));
        assert_eq!(get(2000, Ok("d".into())), (Ok("d".into()), 3));
    }

    #[test]
    fn every_name_is_served_and_documented_and_the_dashboard_knows_no_other() {
        let text: String = both().iter().map(|counted| counted.text().unwrap()).collect();
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
        let dashboard = std::fs::read_to_string(root.join("packaging/grafana/overbook.json")).unwrap();
        serde_json::from_str::<Value>(&dashboard).unwrap();
        let known = |word: &str| names.iter().any(|name| name == word);
        let words = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: Vec<&str> = words
            .filter(|w| {
                w.starts_with("overbook_host_")
                    || w.starts_with("overbook_vm_")
                    || w.starts_with("overbook_guest_")
            })
            .collect();
        assert!(used.len() > 5);
        assert_eq!(
            used.into_iter().find(|word| !known(word)),
            None,
            "the dashboard asks for what is not served"
        );
    }

    /// Prometheus' own parser of its format, from Debian's python3-prometheus-client.
    #[test]
    fn prometheus_parses_it() {
        for counted in both() {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), counted.text().unwrap()).unwrap();
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
