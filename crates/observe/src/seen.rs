// SPDX-License-Identifier: GPL-2.0-only
//! What is seen of a host and its VMs from outside, as metrics: the same whoever schedules, so that no series ends when a
//! scheduler comes or goes.

use crate::snapshot::{Snapshot, VcpuCounters, VmCounters};
use overbook_vms::names::{Identity, Stack};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;

/// Counters in ns, shown in seconds: of a VM the sum over its vCPUs.
type Time = (&'static str, &'static str, fn(&VcpuCounters) -> u64);

const OF_VM: [Time; 2] = [
    ("overbook_vm_run", "time that the vCPUs ran", |v| v.run_ns),
    ("overbook_vm_ready", "time that the vCPUs could run and had no CPU", |v| v.wait_ns),
];

const OF_VCPU: [Time; 2] = [
    ("overbook_vcpu_run", "time that a vCPU ran", |v| v.run_ns),
    ("overbook_vcpu_ready", "time that a vCPU could run and had no CPU", |v| v.wait_ns),
];

/// What tells a VM from others.
pub struct Labels<'a> {
    who: &'a Identity,
    stack: String,
    pid: String,
}

impl<'a> Labels<'a> {
    /// Of the VM of a process.
    pub fn of(pid: i64, who: &'a Identity) -> Labels<'a> {
        // Who cannot be looked at any more has no stack, and no word for that.
        let stack = if who.stack == Stack::Other { String::new() } else { who.stack.to_string() };
        Labels { who, stack, pid: pid.to_string() }
    }

    /// Of the VM itself.
    pub fn vm(&self) -> impl EncodeLabelSet + '_ {
        self.pairs()
    }

    /// Of a part of it, such as a vCPU.
    pub fn part<'b>(&'b self, name: &'b str, value: &'b str) -> impl EncodeLabelSet + 'b {
        let [vm, namespace, stack, id, pid] = self.pairs();
        [vm, namespace, stack, id, pid, (name, value)]
    }

    fn pairs(&self) -> [(&str, &str); 5] {
        [
            ("vm", &self.who.name),
            ("namespace", &self.who.namespace),
            ("stack", &self.stack),
            ("id", &self.who.id),
            ("pid", &self.pid),
        ]
    }
}

/// Writes all that a snapshot tells, but what probes count. `gone` has what vCPUs did that are not there any more, by the
/// process of their VM ([`crate::gone`]).
///
/// # Errors
/// None that was ever seen.
pub fn encode(
    seen: &Snapshot,
    gone: &BTreeMap<i32, VcpuCounters>,
    to: &mut DescriptorEncoder,
) -> fmt::Result {
    gauge(to, "overbook_cpus", "online CPUs", seen.cpus.into())?;
    let ours = seen.scheduler.starts_with("overbook");
    gauge(to, "overbook_scheduler_loaded", "1 while a scheduler of ours is loaded, else 0", ours.into())?;
    let mut family = to.encode_descriptor("overbook_scheduler", "who schedules", None, MetricType::Gauge)?;
    ConstGauge::new(1u64).encode(family.encode_family(&[("name", seen.scheduler.as_str())])?)?;
    if let Some(loads) = seen.loads {
        let help = "sched_ext schedulers loaded since the kernel has booted";
        let family = to.encode_descriptor("overbook_scheduler_loads", help, None, MetricType::Counter)?;
        ConstCounter::new(loads).encode(family)?;
    }
    let none = VcpuCounters::default();
    let vms: Vec<(Labels, &VmCounters, &VcpuCounters)> = seen
        .vms
        .iter()
        .map(|(pid, vm)| (Labels::of((*pid).into(), &vm.who), vm, gone.get(pid).unwrap_or(&none)))
        .collect();
    let mut family = to.encode_descriptor("overbook_vm_vcpus", "vCPUs", None, MetricType::Gauge)?;
    for (labels, vm, _) in &vms {
        ConstGauge::new(vm.vcpus.len() as u64).encode(family.encode_family(&labels.vm())?)?;
    }
    for (name, help, of) in OF_VM {
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (labels, vm, gone) in &vms {
            let ns = vm.vcpus.values().map(of).sum::<u64>() + of(gone);
            ConstCounter::new(ns as f64 / 1e9).encode(family.encode_family(&labels.vm())?)?;
        }
    }
    for (name, help, of) in OF_VCPU {
        let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (labels, vm, _) in &vms {
            for (id, vcpu) in &vm.vcpus {
                let id = id.to_string();
                let counter = ConstCounter::new(of(vcpu) as f64 / 1e9);
                counter.encode(family.encode_family(&labels.part("vcpu", &id))?)?;
            }
        }
    }
    Ok(())
}

fn gauge(to: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstGauge::new(value).encode(to.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// Names of all that [`encode`] may write, as scrapers see them.
pub fn names() -> Vec<String> {
    let plain = ["overbook_cpus", "overbook_scheduler_loaded", "overbook_scheduler", "overbook_vm_vcpus"];
    let mut names: Vec<String> = plain.map(String::from).to_vec();
    names.push("overbook_scheduler_loads_total".into());
    let times = OF_VM.iter().chain(&OF_VCPU);
    names.extend(times.map(|(name, ..)| format!("{name}_seconds_total")));
    names
}
