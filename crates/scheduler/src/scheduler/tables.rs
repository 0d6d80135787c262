// SPDX-License-Identifier: GPL-2.0-only
//! The tables of VMs, vCPUs and groups that the scheduler keeps, and the counters of CPUs: read, and told homes and classes.

use super::Scheduler;
use crate::costs;
use crate::intf;
use crate::skeleton::types;
use crate::stats::{ClassStats, HostStats, VcpuStats, VmStats, read};
use crate::usage::{Level, VmUse, weight_among_all};
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use overbook_policy::class::Class;
use overbook_policy::home::Resident;
use std::collections::BTreeMap;

/// Why the object's state cannot be had.
pub(super) const NO_STATE: &str = "the scheduler's object has no state";

/// Adds to VMs, by process, their vCPUs, those that have ended too; `pids`: processes by the VM's place plus one.
/// An entry that outlived its VM is no vCPU of the VM that has that VM's place now.
fn add_vcpus(
    vms: &mut BTreeMap<u32, VmStats>,
    pids: &BTreeMap<u32, u32>,
    mut vcpus: Vec<intf::ovb_vcpu_stats>,
) {
    // Of two with one id, the one that lives is shown.
    vcpus.sort_by_key(|vcpu| vcpu.alive);
    for vcpu in vcpus {
        let pid = pids.get(&vcpu.vm).filter(|pid| **pid == vcpu.process);
        if let Some(vm) = pid.and_then(|pid| vms.get_mut(pid)) {
            vm.add_vcpu(vcpu.id, VcpuStats::from_raw(&vcpu));
        }
    }
}

impl Scheduler<'_> {
    /// What it has counted.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn stats(&self) -> Result<HostStats> {
        let mut stats = HostStats {
            at_ns: self.since.elapsed().as_nanos() as u64,
            visible: self.visible.describe().into(),
            ..HostStats::default()
        };
        let rows = self.skel.maps.cpu_ctxs.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let words: Vec<Vec<u64>> = rows.unwrap_or_default().iter().map(|row| words_of(row)).collect();
        // The counters are the last of a CPU's words.
        let counts = intf::ovb_count_OVB_COUNTS as usize;
        let sum = |i: usize| words.iter().filter_map(|row| row.get(row.len().checked_sub(counts)? + i)).sum();
        stats.set_counts(&(0..counts).map(sum).collect::<Vec<u64>>());
        stats.vms = self.vm_stats()?;
        let patience_ns = self.tunables.patience_ms * 1_000_000;
        for class in Class::ALL {
            // What was longest, and what was too long, stand just before the counters.
            let slots = intf::OVB_CLASS_SLOTS as usize;
            let column = |before: usize| {
                let from_end = counts + before - class as usize;
                words.iter().filter_map(move |row| row.get(row.len().checked_sub(from_end)?))
            };
            let of_class = ClassStats {
                vms: stats.vms.values().filter(|vm| vm.class == class.name() && vm.alive != 0).count() as u64,
                longest_ns: column(2 * slots).copied().max().unwrap_or(0),
                broken: column(slots).sum(),
                promise_ns: class.promise(patience_ns),
            };
            stats.classes.insert(class.name().into(), of_class);
        }
        if self.counting.is_some() {
            stats.programs = costs::programs();
        }
        Ok(stats)
    }

    /// CPUs of each LLC.
    pub fn llcs(&self) -> Vec<u32> {
        let topology = self.skel.maps.rodata_data.as_ref();
        topology.map_or_else(Vec::new, |of| of.llc_cpus[..of.nr_llcs as usize].to_vec())
    }

    /// Gives VMs, by their places, homes: an LLC plus one, or 0 for none.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn house(&mut self, homes: &[(u32, u32)]) -> Result<()> {
        let state = self.state_mut()?;
        for (place, home) in homes {
            if let Some(entry) = state.vm_homes.get_mut(*place as usize) {
                *entry = *home;
            }
        }
        Ok(())
    }

    /// VMs that live: place and process.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn places(&self) -> Result<Vec<(u32, u32)>> {
        let vms = self.vms::<intf::ovb_place_of_vm>()?;
        Ok(vms.into_iter().filter(|(_, vm)| vm.alive != 0).map(|(place, vm)| (place, vm.pid)).collect())
    }

    /// Gives VMs, by their places, classes; all that live are told of.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn classify(&mut self, classes: &[(u32, Class)]) -> Result<()> {
        let state = self.state_mut()?;
        for (place, class) in classes {
            if let Some(entry) = state.vm_classes.get_mut(*place as usize).filter(|e| **e != *class as u32) {
                *entry = *class as u32;
            }
        }
        state.some_classes = classes.iter().any(|(_, class)| *class != Class::Normal).into();
        Ok(())
    }

    /// VMs that live: what they have wanted since they are known.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn residents(&self) -> Result<Vec<Resident>> {
        let mut all = BTreeMap::new();
        for (place, vm) in self.vms::<types::vm_ctx>()?.into_iter().filter(|(_, vm)| vm.at.alive != 0) {
            let of = Resident { place, pid: vm.at.pid, vcpus: vm.at.alive, ..Resident::default() };
            all.insert(place + 1, Resident { limit: self.due(vm.node)?.1, ..of });
        }
        for vcpu in self.vcpus()?.filter(|vcpu| vcpu.alive != 0) {
            if let Some(vm) = all.get_mut(&vcpu.vm) {
                vm.wanted_ns += vcpu.run_ns + vcpu.queued_ns;
                vm.llcs |= vcpu.llcs;
            }
        }
        Ok(all.into_values().collect())
    }

    /// VMs that live, by process: what they have used and may use.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn vms_use(&self) -> Result<BTreeMap<u32, VmUse>> {
        let (mut all, mut pids) = (BTreeMap::new(), BTreeMap::new());
        for (place, vm) in self.vms::<types::vm_ctx>()?.into_iter().filter(|(_, vm)| vm.at.alive != 0) {
            let (weight, limit) = self.due(vm.node)?;
            all.insert(vm.at.pid, VmUse { weight, limit, ..VmUse::default() });
            pids.insert(place + 1, vm.at.pid);
        }
        for vcpu in self.vcpus()?.filter(|vcpu| vcpu.alive != 0) {
            if let Some(vm) = pids.get(&vcpu.vm).and_then(|pid| all.get_mut(pid)) {
                vm.add_vcpu(&vcpu);
            }
        }
        Ok(all)
    }

    /// What the tenant at a place weighs among all, and how many CPUs the limits down to it allow.
    fn due(&self, place: u32) -> Result<(f64, Option<f64>)> {
        let (mut at, mut levels, mut limit) = (place, Vec::new(), None::<f64>);
        while at != 0 {
            let Some(entry) = self.skel.maps.nodes.lookup(&at.to_ne_bytes(), MapFlags::ANY)? else { break };
            let node: types::node_ctx = read(&entry);
            let (weight, counted) = (u64::from(node.weight), node.counted & 0xffff_ffff);
            levels.push(Level { weight, counted, members: node.active_weight });
            if node.quota.quota != 0 && node.quota.period != 0 {
                let cpus = node.quota.quota as f64 / node.quota.period as f64;
                limit = Some(limit.map_or(cpus, |least| least.min(cpus)));
            }
            at = node.parent;
        }
        Ok((weight_among_all(&levels), limit))
    }

    /// VMs by process. Those that have ended are told of until their places in the table are needed.
    fn vm_stats(&self) -> Result<BTreeMap<u32, VmStats>> {
        // Before anybody's name, which takes files: beside vCPUs that contend, a while.
        let vcpus: Vec<_> = self.vcpus()?.filter(|vcpu| vcpu.pid != 0).collect();
        let (mut all, mut pids) = (BTreeMap::new(), BTreeMap::new());
        let state = self.state()?;
        for (place, vm) in self.vms::<intf::ovb_place_of_vm>()?.into_iter().filter(|(_, vm)| vm.pid != 0) {
            let counts = self.skel.maps.vm_counts.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY)?;
            let Some(rows) = counts else { continue };
            let class = state.vm_classes.get(place as usize).filter(|_| state.some_classes != 0);
            let class = Class::numbered(class.copied().unwrap_or(0)).name().into();
            let alive = u64::from(vm.alive != 0);
            all.insert(vm.pid, VmStats { class, alive, ..VmStats::from_rows(vm.pid, &rows) });
            pids.insert(place + 1, vm.pid);
        }
        add_vcpus(&mut all, &pids, vcpus);
        Ok(all)
    }

    fn state(&self) -> Result<&types::bss> {
        self.skel.maps.bss_data.as_deref().context(NO_STATE)
    }

    fn state_mut(&mut self) -> Result<&mut types::bss> {
        self.skel.maps.bss_data.as_deref_mut().context(NO_STATE)
    }

    /// Places of the table of VMs that were ever used, as BPF's `struct vm_ctx` or what that begins with.
    fn vms<T: Copy>(&self) -> Result<Vec<(u32, T)>> {
        entries(&self.skel.maps.vms, self.state()?.vms_used.min(intf::OVB_MAX_VMS))
    }

    /// Places of the table of vCPUs that were ever used.
    fn vcpus(&self) -> Result<impl Iterator<Item = intf::ovb_vcpu_stats> + use<>> {
        let used = self.state()?.vcpus_used.min(intf::OVB_MAX_ALL_VCPUS);
        Ok(entries(&self.skel.maps.vcpus, used)?.into_iter().map(|(_, vcpu)| vcpu))
    }
}

/// The first `used` entries of an array, with their places.
fn entries<T: Copy>(map: &impl MapCore, used: u32) -> Result<Vec<(u32, T)>> {
    let mut all = Vec::new();
    for place in 0..used {
        let entry = map.lookup(&place.to_ne_bytes(), MapFlags::ANY)?;
        all.extend(entry.map(|entry| (place, read(&entry))));
    }
    Ok(all)
}

fn words_of(row: &[u8]) -> Vec<u64> {
    row.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_has_no_vcpus_of_the_one_whose_place_it_has() {
        let vcpu = |process, pid, id, alive, run_ns| intf::ovb_vcpu_stats {
            vm: 1,
            process,
            pid,
            id,
            alive,
            run_ns,
            longest_ns: run_ns,
            ..read(&[0; size_of::<intf::ovb_vcpu_stats>()])
        };
        let mut vms = BTreeMap::from([(200, VmStats::default())]);
        // A stranger's, that of a thread that has ended, and the one that runs this vCPU now, in any order.
        let all = vec![vcpu(200, 203, 0, 1, 5), vcpu(100, 101, 0, 0, 900), vcpu(200, 202, 0, 0, 70)];
        add_vcpus(&mut vms, &BTreeMap::from([(1, 200)]), all);
        let vm = &vms[&200];
        assert_eq!((vm.vcpus.len(), vm.run_ns, vm.longest_ns), (1, 75, 70));
        assert_eq!(vm.vcpus[&0].pid, 203);
    }
}
