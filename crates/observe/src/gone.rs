// SPDX-License-Identifier: GPL-2.0-only
//! What vCPUs did that are not there any more. The counters of a VM are sums over its vCPUs, and must not fall when one is
//! unplugged, or cannot be read for a moment: to Prometheus that would be a VM that began anew, and had run for years since.

use crate::snapshot::{Snapshot, VcpuCounters};
use std::collections::BTreeMap;

/// All threads that were vCPUs of VMs that are there, with what they had last, by process and thread.
#[derive(Debug, Default)]
pub struct Gone(BTreeMap<i32, BTreeMap<i32, VcpuCounters>>);

impl Gone {
    /// Looks at a snapshot: what the vCPUs that it lacks had run and waited, by process.
    pub fn of(&mut self, seen: &Snapshot) -> BTreeMap<i32, VcpuCounters> {
        self.0.retain(|pid, _| seen.vms.contains_key(pid));
        let sums = seen.vms.iter().map(|(pid, vm)| {
            let known = self.0.entry(*pid).or_default();
            known.extend(vm.vcpus.values().map(|vcpu| (vcpu.tid, *vcpu)));
            let is_there = |tid: i32| vm.vcpus.values().any(|vcpu| vcpu.tid == tid);
            let gone = known.iter().filter(|(tid, _)| !is_there(**tid));
            let sum = gone.fold(VcpuCounters::default(), |sum, (_, vcpu)| VcpuCounters {
                run_ns: sum.run_ns + vcpu.run_ns,
                wait_ns: sum.wait_ns + vcpu.wait_ns,
                ..sum
            });
            (*pid, sum)
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::VmCounters;

    fn seen(vcpus: &[(u32, i32, u64)]) -> Snapshot {
        let vcpu = |(id, tid, run_ns): &(u32, i32, u64)| {
            (*id, VcpuCounters { tid: *tid, run_ns: *run_ns, ..VcpuCounters::default() })
        };
        let vm = VmCounters { vcpus: vcpus.iter().map(vcpu).collect(), ..VmCounters::default() };
        Snapshot { vms: BTreeMap::from([(7, vm)]), ..Snapshot::default() }
    }

    #[test]
    fn sums_never_fall() {
        let mut gone = Gone::default();
        let mut total = |vcpus: &[(u32, i32, u64)]| {
            gone.of(&seen(vcpus))[&7].run_ns + vcpus.iter().map(|vcpu| vcpu.2).sum::<u64>()
        };
        assert_eq!(total(&[(0, 70, 100), (1, 71, 50)]), 150);
        assert_eq!(total(&[(0, 70, 110)]), 160, "one was unplugged, or could not be read");
        assert_eq!(total(&[(0, 70, 120), (1, 71, 60)]), 180, "it is back");
        assert_eq!(total(&[(0, 70, 130), (1, 72, 5)]), 195, "another thread runs that vCPU");
        gone.of(&Snapshot::default());
        assert_eq!(gone.of(&seen(&[(0, 70, 1)]))[&7].run_ns, 0, "another VM with that process");
    }
}
