// SPDX-License-Identifier: GPL-2.0-only
//! The bound: how fast a VM could go if it never waited for a preempted sibling.

use anyhow::{Context, Result, bail, ensure};
use overbook_report::schema::{BoundPoint, Run, VmBound, VmResult};
use overbook_report::stats::median;

/// What the repetitions gave.
#[derive(Default)]
pub struct Points {
    rates: Vec<f64>,
    cpu_ns_per_unit: Vec<f64>,
}

impl Points {
    /// Adds a run of the VM alone. Waits of a VM that `halts` are how late its timers woke it: it had no CPU meanwhile.
    ///
    /// # Errors
    /// It failed, or did nothing.
    pub fn add(&mut self, run: &Run, halts: bool) -> Result<()> {
        let vm = worked(run, 0)?;
        self.rates.push(vm.rate);
        let waited = |vcpu| if halts { 0 } else { waited_ns(vcpu) };
        let useful: f64 = vm.vcpus.iter().map(|vcpu| vcpu.run_ns.saturating_sub(waited(vcpu)) as f64).sum();
        self.cpu_ns_per_unit.push(useful / vm.work as f64);
        Ok(())
    }

    /// Adds what the nth Linux guest did alone. What of its time it spent waiting nobody can tell.
    ///
    /// # Errors
    /// As [`Points::add`].
    pub fn add_guest(&mut self, run: &Run, nth: usize) -> Result<()> {
        let vm = worked(run, nth)?;
        self.rates.push(vm.rate);
        self.cpu_ns_per_unit.push(vm.cpus_used * 1e9 / vm.rate);
        Ok(())
    }

    /// The bound of a VM of so many vCPUs with such a share; `None` if it never did anything alone.
    pub fn bound(&self, name: &str, vcpus: u32, share_cpus: f64) -> Option<VmBound> {
        if self.rates.is_empty() {
            return None;
        }
        let serial = median(&self.rates);
        let cpu_ns_per_unit = median(&self.cpu_ns_per_unit);
        let by_cpu = share_cpus * 1e9 / cpu_ns_per_unit;
        Some(VmBound {
            vm: name.into(),
            share_cpus,
            points: vec![BoundPoint { cpus: vcpus, rates: self.rates.clone() }],
            cpu_ns_per_unit,
            limited_by: if serial <= by_cpu { "serial" } else { "cpu" }.into(),
            rate: serial.min(by_cpu),
        })
    }
}

/// The VM of a run that was there alone.
fn worked(run: &Run, nth: usize) -> Result<&VmResult> {
    if let Some(why) = &run.error {
        bail!("the bound cannot be measured, as a VM failed alone: {why}");
    }
    let vm = run.vms.get(nth).context("nothing ran alone")?;
    ensure!(vm.work > 0 && vm.rate > 0.0, "the bound cannot be measured, as {} did nothing alone", vm.name);
    Ok(vm)
}

/// Time spent waiting, from the middle of each bucket.
fn waited_ns(vcpu: &overbook_report::schema::VcpuResult) -> u64 {
    vcpu.wait.buckets.iter().map(|(upper, count)| upper * count - upper * count / 32).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_report::schema::{VcpuResult, WaitHistogram};

    #[test]
    fn how_late_a_timer_wakes_takes_no_cpu() {
        // Ten units in 1 ms of a CPU, and ten waits of 32 µs.
        let wait = WaitHistogram { buckets: vec![(32_000, 10)], max_ns: 32_000 };
        let vcpu = VcpuResult { run_ns: 1_000_000, wait, ..VcpuResult::default() };
        let vm = VmResult { work: 10, rate: 10.0, vcpus: vec![vcpu], ..VmResult::default() };
        let run = Run { vms: vec![vm], ..Run::default() };
        let cpu_ns = |halts| {
            let mut points = Points::default();
            points.add(&run, halts).unwrap();
            points.bound("vm1", 1, 1.0).unwrap().cpu_ns_per_unit
        };
        assert_eq!((cpu_ns(true), cpu_ns(false)), (100_000.0, 69_000.0));
    }
}
