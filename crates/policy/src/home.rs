// SPDX-License-Identifier: GPL-2.0-only
//! `home.h`: in which LLC a VM's vCPUs wait.

use crate::ffi;
use std::collections::BTreeMap;

pub use ffi::{ovb_house as House, ovb_housed as Housed};

/// Parts of a CPU.
const ONE: u32 = 10_000;

impl House {
    /// An LLC of so many CPUs.
    pub fn new(cpus: u32) -> House {
        House { cpus, parts: cpus * ONE, wanted: 0 }
    }
}

/// Finds homes for VMs, at most 1,024, among LLCs, at most 64.
pub fn find_homes(vms: &mut [Housed], llcs: &mut [House]) {
    // SAFETY: the lengths are the slices' own, and nothing is kept.
    unsafe { ffi::ovb_find_homes(vms.as_mut_ptr(), vms.len() as u32, llcs.as_mut_ptr(), llcs.len() as u32) }
}

/// A VM at a look, as the scheduler knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resident {
    /// Its place in the scheduler's table.
    pub place: u32,
    /// Its process.
    pub pid: u32,
    /// Its vCPUs that live.
    pub vcpus: u32,
    /// ns that they have run and waited in queues, since they are known.
    pub wanted_ns: u64,
    /// LLCs that have CPUs which one of them may use, a bit each; 0 if that is not known yet.
    pub llcs: u64,
    /// CPUs that `cpu.max` allows it, if there is one: what it waits for beyond that it cannot have anywhere.
    pub limit: Option<f64>,
}

/// The homes of all VMs of a host, look by look.
pub struct Homes {
    llcs: Vec<House>,
    /// By place, as a process may have several VMs: process, what it had wanted at the last look, home.
    known: BTreeMap<u32, (u32, u64, u32)>,
    /// When that was, ns.
    at: u64,
}

impl Homes {
    /// A host with LLCs of so many CPUs; nobody has a home.
    pub fn new(cpus: &[u32]) -> Homes {
        Homes { llcs: cpus.iter().map(|cpus| House::new(*cpus)).collect(), known: BTreeMap::new(), at: 0 }
    }

    /// Finds homes by what VMs have wanted since the last look, at `now` in ns: the home of every place that has
    /// another one since, an LLC plus one or 0 for none. A VM that was not there wants all of its vCPUs' CPUs.
    pub fn look(&mut self, now: u64, vms: &[Resident]) -> Vec<(u32, u32)> {
        let elapsed = now.saturating_sub(self.at).max(1);
        self.at = now;
        let housed = |vm: &Resident| {
            let llcs = if vm.llcs == 0 { u64::MAX } else { vm.llcs };
            let allowed = vm.limit.map_or(u32::MAX, |cpus| (cpus * f64::from(ONE)) as u32);
            let most = (vm.vcpus * ONE).min(allowed);
            match self.known.get(&vm.place).filter(|(pid, ..)| *pid == vm.pid) {
                // It has begun anew in its process, or has lost a vCPU.
                Some((_, before, home)) if vm.wanted_ns < *before => {
                    Housed { llcs, vcpus: vm.vcpus, wants: most, home: *home }
                }
                Some((_, before, home)) => {
                    let ns = (vm.wanted_ns - before).min(u64::from(vm.vcpus) * elapsed);
                    let wants = u128::from(ns) * u128::from(ONE) / u128::from(elapsed);
                    Housed { llcs, vcpus: vm.vcpus, wants: (wants as u32).min(allowed), home: *home }
                }
                None => Housed { llcs, vcpus: vm.vcpus, wants: most, home: 0 },
            }
        };
        let mut homes: Vec<Housed> = vms.iter().map(housed).collect();
        find_homes(&mut homes, &mut self.llcs);
        let mut changed = Vec::new();
        let mut known = BTreeMap::new();
        for (vm, Housed { home, .. }) in vms.iter().zip(homes) {
            let last = self.known.get(&vm.place);
            let goes_on = last.filter(|(pid, wanted, _)| *pid == vm.pid && *wanted <= vm.wanted_ns);
            if goes_on.is_none_or(|(_, _, before)| *before != home) {
                changed.push((vm.place, home));
            }
            known.insert(vm.place, (vm.pid, vm.wanted_ns, home));
        }
        self.known = known;
        changed
    }
}
