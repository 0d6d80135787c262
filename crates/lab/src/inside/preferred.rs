// SPDX-License-Identifier: GPL-2.0-only
//! A kernel of the series keeps tasks to the CPUs that its user chooses. Other kernels have nothing to check.

use super::guest::{PATIENCE, Worker, places, wait};
use super::kernel::set_online;
use crate::machine::switches::PREFERRED;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread::sleep;
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
    sleep(Duration::from_millis(500));
    choose("0-3")?;
    wait(PATIENCE, "leave a CPU without a tick", || Ok(places([&tickless])? == [0]))?;
    say("who runs without a tick leaves a CPU that is not preferred any more")?;

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

fn choose(list: &str) -> Result<()> {
    fs::write(PREFERRED, list).with_context(|| format!("the kernel does not prefer {list:?}"))
}

fn chosen() -> Result<String> {
    Ok(fs::read_to_string(PREFERRED)?.trim().to_string())
}
