// SPDX-License-Identifier: GPL-2.0-only
//! The host model (bpf/thief.bpf.c), and the `/proc/stat` that its guest sees.

use super::perf::{self, Attributes};
use crate::machine::task;
use crate::scenario::{GuestSpec, HostShare};
use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};
use std::fmt::Write;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

#[allow(clippy::all, clippy::pedantic, missing_docs, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/thief.skel.rs"));
}

const ONE: f64 = 1024.0;
/// USER_HZ.
const TICK_NS: u64 = 10_000_000;

/// What a CPU of the guest had and was owed, in ns since the model was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    pub run_ns: u64,
    pub stolen_ns: u64,
}

/// The model, taking CPUs until it is dropped.
pub struct Thief {
    skel: skeleton::ThiefSkel<'static>,
    _links: Vec<Link>,
    cpus: Vec<u32>,
    turn_ns: u64,
}

impl Thief {
    /// Starts a timer on every CPU, out of step with each other.
    ///
    /// # Errors
    /// The kernel refuses the program or the timers.
    pub fn start(spec: &GuestSpec, cpus: &[u32], dilation: f64) -> Result<Thief> {
        // It would slow the timers down, as their handlers take long on purpose.
        let _ = fs::write("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let opened = skeleton::ThiefSkelBuilder::default().open(object);
        let mut skel =
            opened.and_then(|open| open.load()).context("the kernel refuses the model of the host")?;
        let turn_ns = (spec.host_turn_us * 1000.0 * dilation) as u64;
        let data = skel.maps.data_data.as_deref_mut().context("the model has no settings")?;
        data.nr_cpus = cpus.len() as u32;
        let bss = skel.maps.bss_data.as_deref_mut().context("the model has no state")?;
        bss.host_cpus = (spec.cpus * ONE) as u64;
        bss.others = u64::from(spec.others) * ONE as u64;
        bss.by_vcpu = (spec.share == HostShare::Vcpu).into();
        bss.turn_ns = turn_ns;
        let mut links = Vec::new();
        let attributes = Attributes {
            kind: perf::SOFTWARE,
            config: perf::CPU_CLOCK,
            sample_period: turn_ns,
            ..Attributes::new()
        };
        for cpu in cpus {
            std::thread::sleep(Duration::from_nanos(turn_ns / cpus.len() as u64));
            let timer = perf::open(&attributes, *cpu)?;
            links.push(skel.progs.take.attach_perf_event(timer.as_raw_fd())?);
            // The link keeps the event.
            std::mem::forget(timer);
        }
        Ok(Thief { skel, _links: links, cpus: cpus.to_vec(), turn_ns })
    }

    /// By CPU.
    pub fn given(&self) -> Vec<Given> {
        let Some(bss) = self.skel.maps.bss_data.as_ref() else { return Vec::new() };
        let one = |cpu: &u32| {
            let taken = &bss.taken[*cpu as usize];
            let wanted = taken.busy_turns * self.turn_ns;
            Given { run_ns: wanted.saturating_sub(taken.stolen_ns), stolen_ns: taken.stolen_ns }
        };
        self.cpus.iter().map(one).collect()
    }

    /// Writes what the guest would find in `/proc/stat`.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn publish(&self, file: &Path) -> Result<()> {
        let mut text = String::new();
        for (cpu, given) in self.cpus.iter().zip(self.given()) {
            let (run, stolen) = (given.run_ns / TICK_NS, given.stolen_ns / TICK_NS);
            writeln!(text, "cpu{cpu} {run} 0 0 0 0 0 0 {stolen} 0 0")?;
        }
        // A reader must see a whole file.
        let fresh = file.with_extension("new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, file)).context("cannot write steal times")
    }
}

/// Writes the guest's `/proc/stat` again and again, on a thread that comes before all others.
pub fn keep_publishing(
    thief: &Thief,
    file: &Path,
    every: Duration,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<()> {
    let _ = task::set_policy(libc::SCHED_FIFO, 2);
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        thief.publish(file)?;
        std::thread::sleep(every);
    }
    Ok(())
}
