// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's own figures say of waiting vCPUs under a scheduler: `schedstat`, which ready time is made of; `wait_sum`
//! of `/proc/PID/sched`, which libvirt shows as `vcpu.wait`; and pressure.

use crate::protocol::Event;
use anyhow::{Context, Result};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to look.
const WINDOW: Duration = Duration::from_secs(2);

/// Sums over the vCPUs of some VMs, and the whole machine's pressure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// The middle of its reading, which takes a while beside vCPUs that contend.
    at: Instant,
    /// Ran, ns: `/proc/PID/task/TID/schedstat`, the first number.
    run_ns: u64,
    /// Waited for a CPU, ns: the second number there.
    run_delay_ns: u64,
    /// The same as EEVDF counts it, ns: `wait_sum` of `/proc/PID/task/TID/sched`.
    wait_sum_ns: u64,
    /// Anybody waited for a CPU, µs: `some` of `/proc/pressure/cpu`. Nothing on kernels without it.
    pressure_us: Option<u64>,
}

/// Says what grew within two seconds.
///
/// # Errors
/// The kernel does not tell, or the VMs have ended.
pub fn look(scheduler: &str, pids: &[i32], say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    fs::write("/proc/sys/kernel/sched_schedstats", "1").context("this kernel has no schedstats")?;
    let before = sample(pids)?;
    sleep(WINDOW);
    let after = sample(pids)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let cpus = |now: u64, then: u64| now.saturating_sub(then) as f64 / 1e9 / seconds;
    let pressure = match (before.pressure_us, after.pressure_us) {
        (Some(then), Some(now)) => format!("{:.2}", cpus(now * 1000, then * 1000)),
        _ => "none".into(),
    };
    say(Event::Log(format!(
        "waiting under {scheduler}: schedstat {:.2} CPUs, ran {:.2} CPUs, wait_sum {:.2} CPUs, pressure {pressure}",
        cpus(after.run_delay_ns, before.run_delay_ns),
        cpus(after.run_ns, before.run_ns),
        cpus(after.wait_sum_ns, before.wait_sum_ns),
    )))
}

fn sample(pids: &[i32]) -> Result<Sample> {
    let start = Instant::now();
    let mut sum = Sample { at: start, run_ns: 0, run_delay_ns: 0, wait_sum_ns: 0, pressure_us: None };
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task")).context("a VM has ended")?.flatten() {
            let name = fs::read_to_string(task.path().join("comm"))?;
            if !name.starts_with("CPU ") {
                continue;
            }
            let schedstat = fs::read_to_string(task.path().join("schedstat"))?;
            let mut numbers = schedstat.split_whitespace().map_while(|word| word.parse::<u64>().ok());
            sum.run_ns += numbers.next().context("schedstat has no number")?;
            sum.run_delay_ns += numbers.next().context("schedstat has no second number")?;
            sum.wait_sum_ns += wait_sum_ns(&fs::read_to_string(task.path().join("sched"))?)
                .context("/proc/PID/sched has no wait_sum")?;
        }
    }
    sum.pressure_us = fs::read_to_string("/proc/pressure/cpu").ok().as_deref().and_then(pressure_us);
    sum.at = start + start.elapsed() / 2;
    Ok(sum)
}

/// `wait_sum` in the text of `/proc/PID/sched`, which is in ms there; older kernels put `se.statistics.` before it.
fn wait_sum_ns(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.split(':').next().is_some_and(|key| key.trim().ends_with("wait_sum")))?;
    let ms: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    Some((ms * 1e6) as u64)
}

/// `total` of the line `some` in a file of pressure.
fn pressure_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let sched = "CPU 0/KVM (4411, #threads: 5)\n---\nse.exec_start   :   9.1\nwait_max  :  3.000001\nwait_sum      :   1234.500000\n";
        assert_eq!(wait_sum_ns(sched), Some(1_234_500_000));
        assert_eq!(wait_sum_ns("se.statistics.wait_sum : 0.002000\n"), Some(2000));
        assert_eq!(wait_sum_ns("wait_max : 1.0\n"), None);
        let pressure = "some avg10=1.53 avg60=0.87 avg300=0.39 total=8841123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(pressure_us(pressure), Some(8_841_123));
        assert_eq!(pressure_us(""), None);
    }
}
