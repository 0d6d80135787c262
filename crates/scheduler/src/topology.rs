// SPDX-License-Identifier: GPL-2.0-only
//! The machine's topology, read while CPUs may come and go: sysfs loses a CPU file by file.

use anyhow::{Context, Result, ensure};
use scx_utils::Topology;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Where the kernel lists the CPUs that run.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// How often sysfs is read again before what is wrong with it counts as wrong for good.
const READINGS: u32 = 100;

/// Pause between two readings. With [`READINGS`] it gives a CPU a second to go.
const PAUSE: Duration = Duration::from_millis(10);

/// The CPUs that run, as a list.
///
/// # Errors
/// It cannot be read.
pub fn online() -> Result<String> {
    fs::read_to_string(ONLINE).with_context(|| format!("cannot read {ONLINE}"))
}

/// The CPUs that this machine can ever have, as a list; empty if it does not say.
pub fn possible() -> String {
    fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default()
}

/// The topology of the CPUs that are online before and after it is read.
///
/// # Errors
/// It cannot be read, or CPUs come and go for all of a second.
pub fn read() -> Result<Topology> {
    steady(Topology::new, online, || sleep(PAUSE)).context("cannot read the CPUs' topology from sysfs")
}

/// What `read` gives once `online` says the same before and after.
fn steady<T>(
    mut read: impl FnMut() -> Result<T>,
    mut online: impl FnMut() -> Result<String>,
    mut pause: impl FnMut(),
) -> Result<T> {
    let mut before = online()?;
    for _ in 1..READINGS {
        let (found, after) = (read(), online()?);
        if found.is_ok() && before == after {
            return found;
        }
        before = after;
        pause();
    }
    let found = read()?;
    ensure!(online()? == before, "CPUs come and go all the time");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn reading(texts: &[&str], faults: u32) -> (Result<u32>, u32) {
        let (mut readings, mut pauses) = (0, 0);
        let mut texts = texts.iter();
        let mut last = "";
        let online = || {
            last = texts.next().unwrap_or(&last);
            Ok(last.to_string())
        };
        let read = || {
            readings += 1;
            if readings <= faults {
                bail!("core_id: no such file");
            }
            Ok(readings)
        };
        let found = steady(read, online, || pauses += 1);
        (found, pauses)
    }

    #[test]
    fn a_steady_machine_is_read_once() {
        let (found, pauses) = reading(&["0-3"], 0);
        assert_eq!((found.unwrap(), pauses), (1, 0));
    }

    #[test]
    fn a_cpu_whose_files_go_is_waited_for() {
        let (found, pauses) = reading(&["0-3", "0-3", "0-2"], 2);
        assert_eq!((found.unwrap(), pauses), (3, 2));
    }

    #[test]
    fn what_was_read_while_a_cpu_went_is_read_again() {
        let (found, pauses) = reading(&["0-3", "0-2", "0-2"], 0);
        assert_eq!((found.unwrap(), pauses), (2, 1));
    }

    #[test]
    fn what_stays_wrong_is_said() {
        let (found, pauses) = reading(&["0-3"], u32::MAX);
        assert_eq!(found.unwrap_err().to_string(), "core_id: no such file");
        assert_eq!(pauses, READINGS - 1);
    }

    #[test]
    fn flapping_is_said() {
        let texts: Vec<String> = (0..2 * READINGS).map(|nth| format!("0-{nth}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(reading(&texts, 0).0.unwrap_err().to_string(), "CPUs come and go all the time");
    }
}
