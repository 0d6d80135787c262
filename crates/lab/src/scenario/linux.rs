// SPDX-License-Identifier: GPL-2.0-only
//! Linux guests inside the emulated host: what they are and what they run.

use super::Host;
use super::check::{Mistake, mistake, prefixed_table, range};
use super::loads;
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
    /// Of each guest, in MiB, 256 to 4096; [`LinuxSpec::memory_mb`] has the default.
    pub memory_mb: Option<u32>,
    /// See [`Paravirtual`].
    #[serde(default)]
    pub paravirtual: Paravirtual,
    /// A load that comes with the lab ([`loads`]): it says what the keys below do not.
    pub load: Option<String>,
    /// Debian packages that have the programs and files of the guests.
    #[serde(default)]
    pub packages: Vec<String>,
    /// A program of these packages and its arguments, run again and again in every guest. Runs per second are counted.
    #[serde(default)]
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

/// A guest's memory in MiB, if neither scenario nor load say more.
const MEMORY_MB: u32 = 512;

/// A host's memory in MiB, besides its guests': at least, and by default.
const HOST_MB: (u32, u32) = (1024, 1536);

/// Most memory of a host, MB.
pub(super) const MOST_HOST_MB: u32 = 16384;

impl LinuxSpec {
    /// Memory of each guest, in MiB.
    pub fn memory_mb(&self) -> u32 {
        self.memory_mb.unwrap_or(MEMORY_MB)
    }

    /// Memory of a host of these guests that is not said, in MiB.
    pub(super) fn host_memory_mb(&self) -> u32 {
        self.guests.saturating_mul(self.memory_mb()).saturating_add(HOST_MB.1)
    }

    /// Takes from the load, if it names one, what it does not say itself.
    pub(super) fn fill(&mut self) -> Result<(), Mistake> {
        let Some(name) = &self.load else { return Ok(()) };
        let all = loads::all();
        let Some(load) = all.get(name) else {
            let names = all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return mistake(&["linux", "load"], format!("there is no load {name:?}; there are {names}"));
        };
        let or = |own: &mut Vec<String>, its: &[String]| {
            if own.is_empty() {
                *own = its.to_vec();
            }
        };
        or(&mut self.packages, &load.packages);
        or(&mut self.command, &load.command);
        or(&mut self.prepare, &load.prepare);
        if self.files.is_empty() {
            self.files.clone_from(&load.files);
        }
        self.figure = self.figure.take().or_else(|| load.figure.clone());
        self.memory_mb = self.memory_mb.or(load.memory_mb);
        Ok(())
    }

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
        if self.host_memory_mb() > MOST_HOST_MB {
            return mistake(
                &["linux", "memory_mb"],
                format!(
                    "{} guests of {} MB need a host of {} MB, and {MOST_HOST_MB} is the most: lower memory_mb or guests",
                    self.guests,
                    self.memory_mb(),
                    self.host_memory_mb()
                ),
            );
        }
        range(&["host", "memory_mb"], host.memory_mb(), 512, MOST_HOST_MB)?;
        let need_mb = self.guests * self.memory_mb() + HOST_MB.0;
        if host.memory_mb.is_some_and(|mb| mb < need_mb) {
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
        range(&["memory_mb"], self.memory_mb(), 256, 4096)?;
        if self.command.first().is_none_or(String::is_empty) {
            return mistake(
                &["command"],
                "the guests have nothing to do: name a program, such as [\"hackbench\"], or a load".into(),
            );
        }
        Ok(())
    }
}
