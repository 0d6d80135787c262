// SPDX-License-Identifier: GPL-2.0-only
//! Processes that are VMs, as /proc shows them: a process that holds a `kvm-vm` is one.

use std::fs;
use std::path::Path;

/// All VMs of the host, by process. Only root sees those of others.
pub fn vms() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|dir| dir.file_name().to_str()?.parse().ok()).filter(|pid| is_vm(*pid))
}

fn is_vm(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| target == Path::new("anon_inode:kvm-vm"))
}
