// SPDX-License-Identifier: GPL-2.0-only
//! A kernel of the series keeps tasks to the CPUs that its user chooses. Other kernels have nothing to check.

use super::guest::{PATIENCE, Worker, places, wait};
use super::kernel::set_online;
use crate::machine::switches::PREFERRED;
use crate::machine::task;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// Checks a machine of five CPUs, the last of which has no tick while one task runs there.
///
/// # Errors
/// The first thing that does not hold.
pub fn check(say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    // Who has no such switch cannot open it for writing either.
    if fs::File::options().write(true).open(PREFERRED).is_err() {
        return Ok(());
    }
    let busy = Worker::start(&[0])?;
    let tickless = Worker::start(&[0, 4])?;
    wait(PATIENCE, "use the CPU without a tick", || Ok(places([&tickless])?.contains(&4)))?;
    let real_time = RealTime::start(4, &[2, 4])?;
    sleep(Duration::from_millis(500));
    ensure!(
        real_time.place() == 4,
        "all CPUs are preferred, and a real-time task has gone to CPU {}",
        real_time.place()
    );
    choose("0-3")?;
    wait(PATIENCE, "leave a CPU without a tick", || Ok(places([&tickless])? == [0]))?;
    say("who runs without a tick leaves a CPU that is not preferred any more")?;
    wait(PATIENCE, "wake a real-time task on a preferred CPU", || Ok(real_time.place() == 2))?;
    say("a real-time task wakes up on a preferred CPU")?;

    for cpu in [2, 4] {
        set_online(cpu, false)?;
        set_online(cpu, true)?;
        ensure!(chosen()? == "0-3", "after CPU {cpu} went and came, {} are preferred", chosen()?);
    }
    say("what the user chose outlives CPUs that go and come")?;

    choose("\n")?;
    ensure!(chosen()? == "0-4", "nothing is chosen, and {} are preferred", chosen()?);
    wait(PATIENCE, "use all CPUs again", || Ok(places([&tickless])?.contains(&4)))?;
    drop(busy);
    say("all CPUs are preferred again when nothing is chosen")
}

/// A real-time task that sleeps and wakes up, until it is dropped.
struct RealTime(Arc<AtomicI32>);

impl RealTime {
    /// It begins on a CPU, and may use these.
    fn start(first: u32, cpus: &[u32]) -> Result<RealTime> {
        let place = Arc::new(AtomicI32::new(-1));
        let (now, cpus) = (Arc::downgrade(&place), cpus.to_vec());
        thread::spawn(move || {
            let begun = task::bind(0, &[first]).and_then(|()| task::set_policy(libc::SCHED_FIFO, 1));
            if begun.and_then(|()| task::bind(0, &cpus)).is_err() {
                return;
            }
            while let Some(place) = now.upgrade() {
                sleep(Duration::from_millis(5));
                // SAFETY: takes no arguments.
                place.store(unsafe { libc::sched_getcpu() }, Ordering::Relaxed);
            }
        });
        wait(PATIENCE, "start a real-time task", || Ok(place.load(Ordering::Relaxed) >= 0))?;
        Ok(RealTime(place))
    }

    /// The CPU that it ran on last.
    fn place(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn choose(list: &str) -> Result<()> {
    fs::write(PREFERRED, list).with_context(|| format!("the kernel does not prefer {list:?}"))
}

fn chosen() -> Result<String> {
    Ok(fs::read_to_string(PREFERRED)?.trim().to_string())
}
