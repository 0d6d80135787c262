// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that were plugged in. `scx_utils` counts the CPUs that are present once in a process, and knows none beyond them
//! for good; so a program begins anew, in the same process, when such a CPU has come.

use crate::topology;
use anyhow::{Context, Error};
use overbook_cli::cpulist;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Whether a CPU is online that was not there when this process first looked.
pub fn is_due() -> bool {
    topology::online().is_ok_and(|online| is_beyond(&online, *scx_utils::NR_CPU_IDS))
}

/// Whether a list has a CPU beyond the first so many.
fn is_beyond(online: &str, known: usize) -> bool {
    cpulist::parse(online).is_ok_and(|cpus| cpus.last().is_some_and(|cpu| *cpu >= known))
}

/// Says in the environment that the program has begun anew.
const ANEW: &str = "OVERBOOK_ANEW";

/// Whether this is a program that has begun anew.
pub fn has_begun() -> bool {
    std::env::var_os(ANEW).is_some()
}

/// Runs the program again with its own arguments. What it holds must have been given back. Only returns if that fails.
pub fn begin() -> Error {
    log::info!("CPUs were plugged in: beginning anew; what was changed while running is as configured again");
    let why = Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).env(ANEW, "1").exec();
    Err::<(), _>(why).context("cannot begin anew for CPUs that were plugged in").unwrap_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpus_that_were_not_there_count() {
        assert!(!is_beyond("0-3", 4) && !is_beyond("0,3", 4) && !is_beyond("", 4));
        assert!(is_beyond("0-4", 4) && is_beyond("0-1,7", 4));
        assert!(!is_due());
    }
}
