// SPDX-License-Identifier: GPL-2.0-only
//! The preferred CPUs for other programs: `/run/overbook/preferred`, one line in the kernel's format of CPU lists,
//! replaced as a whole. It exists only while `overbook guest` runs.

use anyhow::{Context, Result};
use overbook_cli::cpulist::{self, Cpus};
use overbook_cli::files::replace;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the list is.
pub const FILE: &str = "/run/overbook/preferred";

/// Writes the list; the file goes with the value.
pub struct Published(PathBuf);

impl Published {
    /// Publishes in `file`.
    pub fn new(file: &Path) -> Published {
        Published(file.into())
    }

    /// Replaces the list.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn set(&self, cpus: &Cpus) -> Result<()> {
        replace(&self.0, format!("{}\n", cpulist::format(cpus)).as_bytes())
            .with_context(|| format!("cannot publish the preferred CPUs in {}", self.0.display()))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_goes_with_the_publisher() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("overbook/preferred");
        let published = Published::new(&file);
        published.set(&Cpus::from([0, 1, 3])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "0-1,3\n");
        drop(published);
        assert!(!file.exists());
    }
}
