// SPDX-License-Identifier: GPL-2.0-only
//! Linux guests inside the emulated host: what they are and what they run.

use super::Host;
use super::check::{Mistake, mistake, prefixed_table, range};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// vCPUs of guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Vcpus {
    /// All have so many.
    All(u32),
    /// One after the other.
    Each(Vec<u32>),
}

/// Which of KVM's paravirtual features guests are offered, besides its clock and steal times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paravirtual {
    /// Those that QEMU offers by itself: ends of interrupts, asynchronous page faults.
    #[default]
    Default,
    /// These, and wake-ups of vCPUs that wait for a lock, TLB flushes, IPIs and yields by hypercall.
    All,
    /// None of them.
    None,
}

/// The `[linux]` table: guests with the host's own kernel, that share CPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxSpec {
    /// 1 to 4.
    #[serde(default = "two")]
    pub guests: u32,
    /// 1 to 16 of every guest, or a number for each.
    #[serde(default = "two_vcpus")]
    pub vcpus: Vcpus,
    /// The vCPUs run on the host's first so many CPUs; what else QEMU does runs on the others. 1 to `[host] cpus` − 1.
    pub cpus: u32,
    /// Of each guest, in MiB, 256 to 4096.
    #[serde(default = "memory_mb")]
    pub memory_mb: u32,
    /// See [`Paravirtual`].
    #[serde(default)]
    pub paravirtual: Paravirtual,
    /// Debian packages that have the programs and files of the guests.
    pub packages: Vec<String>,
    /// A program of these packages and its arguments, run again and again in every guest. Runs per second are counted.
    pub command: Vec<String>,
    /// The like, run once when a guest is up.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// A word of its output that stands before a rate per second, which is reported instead of runs per second:
    /// `Throughput`.
    #[serde(default)]
    pub figure: Option<String>,
    /// Files, programs and folders of the packages that are wanted besides these programs, with their libraries.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

fn two() -> u32 {
    2
}

fn two_vcpus() -> Vcpus {
    Vcpus::All(2)
}

fn memory_mb() -> u32 {
    512
}

impl LinuxSpec {
    /// vCPUs of every guest.
    pub fn vcpus(&self) -> Vec<u32> {
        match &self.vcpus {
            Vcpus::All(vcpus) => vec![*vcpus; self.guests as usize],
            Vcpus::Each(vcpus) => vcpus.clone(),
        }
    }

    pub(super) fn check(&self, host: &Host, vms: usize) -> Result<(), Mistake> {
        self.check_values(host.cpus).map_err(|(keys, what)| (prefixed_table("linux", keys), what))?;
        if vms > 0 {
            return mistake(
                &["vm"],
                "Linux guests are not mixed with micro-guests: leave [[vm]] or [linux] out".into(),
            );
        }
        let need_mb = self.guests * self.memory_mb + 1024;
        if host.memory_mb < need_mb {
            return mistake(
                &["host", "memory_mb"],
                format!("the host needs {need_mb} MB for these guests: raise memory_mb to that"),
            );
        }
        Ok(())
    }

    fn check_values(&self, host_cpus: u32) -> Result<(), Mistake> {
        range(&["guests"], self.guests, 1, 4)?;
        if self.vcpus().len() != self.guests as usize {
            return mistake(
                &["vcpus"],
                format!("name a number of vCPUs for each of the {} guests", self.guests),
            );
        }
        for vcpus in self.vcpus() {
            range(&["vcpus"], vcpus, 1, 16)?;
        }
        let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
        if let Some(name) = self.packages.iter().find(|name| name.len() < 2 || !name.bytes().all(fine)) {
            return mistake(&["packages"], format!("{name:?} is no name of a Debian package"));
        }
        if let Some(file) = self.files.iter().find(|file| file.is_relative()) {
            return mistake(&["files"], format!("{} is no path from the root", file.display()));
        }
        if host_cpus < 2 {
            return mistake(&["cpus"], "QEMU needs a CPU beside the guests': raise [host] cpus".into());
        }
        range(&["cpus"], self.cpus, 1, host_cpus - 1)?;
        range(&["memory_mb"], self.memory_mb, 256, 4096)?;
        if self.command.first().is_none_or(String::is_empty) {
            return mistake(
                &["command"],
                "the guests have nothing to do: name a program, such as [\"hackbench\"]".into(),
            );
        }
        Ok(())
    }
}
