// SPDX-License-Identifier: GPL-2.0-only
//! A cgroup with `cpu.idle` weighs next to nothing, whether it had that before the scheduler came or has it since.

use super::guest::Worker;
use crate::experiment::cgroup::remove_tree;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long is looked.
const WHILE: Duration = Duration::from_secs(1);
/// Both groups' tasks share this CPU.
const CPU: u32 = 0;

/// A group with `cpu.idle` and one without.
pub struct IdleGroup {
    idle: PathBuf,
    other: PathBuf,
}

fn create(name: &str) -> Result<PathBuf> {
    let group = Path::new("/sys/fs/cgroup").join(name);
    fs::create_dir(&group).context("cannot make a cgroup")?;
    fs::write(group.join("cgroup.type"), "threaded")?;
    Ok(group)
}

impl IdleGroup {
    /// Makes the groups; no task is in them.
    pub fn create() -> Result<IdleGroup> {
        let groups = IdleGroup { idle: create("idle.slice")?, other: create("other.slice")? };
        groups.set_idle(true)?;
        Ok(groups)
    }

    fn set_idle(&self, idle: bool) -> Result<()> {
        fs::write(self.idle.join("cpu.idle"), if idle { "1" } else { "0" }).context("cannot write cpu.idle")
    }

    /// Whether a task of each has what it should have of a CPU, with `cpu.idle`, without, and with it again.
    ///
    /// # Errors
    /// What one has that should have another share.
    pub fn check(&self) -> Result<()> {
        let start = |group: &Path| {
            let worker = Worker::start(&[CPU])?;
            fs::write(group.join("cgroup.threads"), worker.tid.to_string())?;
            Ok::<_, anyhow::Error>(worker)
        };
        let (idle, _other) = (start(&self.idle)?, start(&self.other)?);
        for (set, least, most) in [(true, 0.0, 0.1), (false, 0.35, 0.65), (true, 0.0, 0.1)] {
            self.set_idle(set)?;
            let had = idle.used_within(WHILE);
            let words = if set { "with" } else { "without" };
            ensure!(
                (least..=most).contains(&had),
                "a group {words} cpu.idle had {had:.2} of a CPU beside another"
            );
        }
        Ok(())
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        for group in [&self.idle, &self.other] {
            let _ = remove_tree(group);
        }
    }
}
