// SPDX-License-Identifier: GPL-2.0-only
//! cgroups of a run's VMs, in the layouts that hosts really have.

use crate::scenario::Cgroups;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";
/// All groups of a run lie below this one.
const SLICE: &str = "overbook-lab.slice";

/// A VM that gets a group.
pub struct Member {
    /// Part of the group's name.
    pub name: String,
    /// vCPUs.
    pub vcpus: u32,
    /// `cpu.weight`; the kernel's default if absent.
    pub weight: Option<u32>,
}

/// The groups of one run.
pub struct Groups {
    layout: Cgroups,
    vms: Vec<PathBuf>,
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

/// Name of the group of a vCPU in its VM's.
fn part(layout: Cgroups, vcpu: usize) -> String {
    if layout == Cgroups::Nested { ["a", "b"][vcpu % 2].into() } else { format!("vcpu{vcpu}") }
}

impl Groups {
    /// Makes the groups, with their weights.
    pub fn create(layout: Cgroups, members: &[Member]) -> Result<Groups> {
        let mut groups = Groups { layout, vms: Vec::new() };
        if layout == Cgroups::Flat {
            return Ok(groups);
        }
        let slice = Path::new(ROOT).join(SLICE);
        fs::create_dir_all(&slice).context("cannot make a cgroup: is cgroup2 mounted?")?;
        write(&slice.join("cgroup.subtree_control"), "+cpu")?;
        for member in members {
            let vm = slice.join(format!("machine-{}.scope", member.name));
            fs::create_dir_all(&vm)?;
            if let Some(weight) = member.weight {
                write(&vm.join("cpu.weight"), &weight.to_string())?;
            }
            if layout != Cgroups::PerVm {
                write(&vm.join("cgroup.subtree_control"), "+cpu")?;
                let libvirt = vm.join("libvirt");
                let parts = (0..member.vcpus as usize).map(|i| part(layout, i)).chain(["emulator".into()]);
                for part in parts {
                    fs::create_dir_all(libvirt.join(&part))?;
                    write(&libvirt.join(&part).join("cgroup.type"), "threaded")?;
                }
                write(&libvirt.join("cgroup.subtree_control"), "+cpu")?;
            }
            groups.vms.push(vm);
        }
        Ok(groups)
    }

    /// Moves a VM's process and its vCPUs' threads into their groups.
    pub fn adopt(&self, nth: usize, pid: i32, vcpus: &[i32]) -> Result<()> {
        let Some(group) = self.vms.get(nth) else { return Ok(()) };
        let pid = pid.to_string();
        if self.layout == Cgroups::PerVm {
            return write(&group.join("cgroup.procs"), &pid);
        }
        let libvirt = group.join("libvirt");
        // A process enters a threaded subtree as a whole, and then its threads spread.
        write(&libvirt.join("cgroup.procs"), &pid)?;
        write(&libvirt.join("emulator/cgroup.threads"), &pid)?;
        for (i, tid) in vcpus.iter().enumerate() {
            write(&libvirt.join(part(self.layout, i)).join("cgroup.threads"), &tid.to_string())?;
        }
        Ok(())
    }

    /// Removes the groups; the VMs must have ended.
    pub fn remove(&self) -> Result<()> {
        if self.layout == Cgroups::Flat {
            return Ok(());
        }
        remove_tree(&Path::new(ROOT).join(SLICE))
    }
}

/// Removes a group and all below it, once its tasks are gone.
pub(crate) fn remove_tree(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    // A group stays busy for a moment after its last task has exited.
    for _ in 0..100 {
        if fs::remove_dir(group).is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))
}
