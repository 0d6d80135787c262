// SPDX-License-Identifier: GPL-2.0-only
//! VMs and their vCPU threads, as /proc shows them.

use std::collections::BTreeMap;
use std::fs;

/// vCPU threads of one VM, by vCPU id.
pub type Threads = BTreeMap<u32, i32>;

/// All VMs of the host, by process. Only root sees those of others.
pub fn find() -> BTreeMap<i32, Threads> {
    overbook_vms::processes().map(|pid| (pid as i32, threads(pid as i32))).collect()
}

fn threads(pid: i32) -> Threads {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let named = tasks.filter_map(|task| {
        let tid: i32 = task.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((vcpu_id(name.trim())?, tid))
    });
    named.collect()
}

/// vCPU id from a thread's name, as VMMs write them: `CPU 3/KVM` (QEMU under libvirt, or with debug-threads=on),
/// `fc_vcpu 3` (Firecracker), `vcpu3` (Cloud Hypervisor), `crosvm_vcpu3`.
fn vcpu_id(name: &str) -> Option<u32> {
    let number = match name.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix("/KVM")) {
        Some(number) => number,
        None => name.split_once("vcpu")?.1.trim_start_matches([' ', '_', '-', '/']),
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_are_known_by_their_threads_names() {
        for (name, id) in [("CPU 3/KVM", 3), ("fc_vcpu 0", 0), ("vcpu12", 12), ("crosvm_vcpu1", 1)] {
            assert_eq!(vcpu_id(name), Some(id), "{name}");
        }
        for name in ["qemu-system-x86", "vcpu", "IO mon_iothread", "CPU x/KVM", "vhost-1234"] {
            assert_eq!(vcpu_id(name), None, "{name}");
        }
    }
}
