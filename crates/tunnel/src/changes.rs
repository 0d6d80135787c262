// SPDX-License-Identifier: GPL-2.0-only
//! What is changed while a host runs.

use crate::host::IDLE_WEIGHT;
use crate::model::MASK_WORDS;
use crate::ops::Op;
use crate::world::{Change, DEVICE_VECTOR, World, mask_of};
use anyhow::Result;

impl World {
    /// As the loader does (`Scheduler::prefer`).
    fn prefer(&mut self, cpus: &[u32]) -> Result<()> {
        let mut wanted = [0u64; MASK_WORDS];
        let mut llcs = vec![0u32; self.host.llcs as usize];
        for cpu in cpus {
            wanted[*cpu as usize / 64] |= 1 << (cpu % 64);
            llcs[(cpu / self.host.cpus.div_ceil(self.host.llcs)) as usize] += 1;
        }
        for (word, bits) in wanted.iter().enumerate() {
            self.model.set::<u64>("wanted_cpus", word, *bits)?;
        }
        for (llc, n) in llcs.iter().enumerate() {
            self.model.set::<u32>("llc_preferred", llc, *n)?;
        }
        self.model.set::<u32>("some_not_preferred", 0, u32::from(cpus.len() < self.host.cpus as usize))
    }

    /// As the loader does: tells the scheduler the classes of the VMs that it knows.
    pub(crate) fn classify(&mut self) {
        let known = self.model.residents().unwrap_or_default();
        for vm in &self.vms {
            let places = known.iter().filter(|at| at.pid == vm.tgid).map(|at| at.place);
            places.for_each(|place| {
                let _ = self.model.set::<u32>("vm_classes", place as usize, vm.spec.class as u32);
            });
        }
        let _ = self.model.set::<u32>("some_classes", 0, 1);
    }

    pub(crate) fn change(&mut self, nth: usize) {
        let change = self.changes[nth].clone();
        self.trace.event(self.now, 0, "change", nth as u32, 0, |text| text.push_str(&change.words()));
        match change {
            Change::GroupWeight(group, weight) => {
                self.groups[group].2 = f64::from(weight);
                self.enter(0, Op::GroupWeight(self.groups[group].0, weight));
            }
            Change::GroupIdle(group, idle) => {
                let weight = &mut self.groups[group].2;
                if idle != (*weight == IDLE_WEIGHT) {
                    *weight = if idle { IDLE_WEIGHT } else { 100.0 };
                }
                self.enter(0, Op::GroupIdle(self.groups[group].0, idle));
            }
            Change::EndGroup(group) => self.enter(0, Op::EndGroup(self.groups[group].0)),
            Change::Bandwidth(group, period, quota) => {
                self.groups[group].3 =
                    if quota == u64::MAX { f64::INFINITY } else { quota as f64 / period as f64 };
                // Whom it held back may run from now on.
                self.tasks.iter_mut().for_each(|task| task.allowed_since = self.now);
                self.enter(0, Op::Bandwidth(self.groups[group].0, period, quota));
            }
            Change::Affinity(task, cpus) => {
                let mask = Box::new(mask_of(Some(&cpus), self.host.cpus));
                self.tasks[task as usize].coming.push(cpus);
                self.tasks[task as usize].allowed_since = self.now;
                self.enter(0, Op::Affinity(task, mask));
            }
            Change::Weight(task, weight, policy) => {
                self.tasks[task as usize].spec.weight = weight;
                self.tasks[task as usize].spec.policy = policy;
                self.enter(0, Op::Weight(task, weight, policy));
            }
            Change::Group(task, group) => {
                let before = self.tasks[task as usize].spec.group.replace(group);
                // Its old one may have held it back.
                if before.is_some_and(|before| self.is_limited(before)) {
                    self.tasks[task as usize].allowed_since = self.now;
                }
                self.enter(0, Op::Group(task, self.groups[group].0));
            }
            Change::Migration(task, disable) => {
                let entry = &mut self.tasks[task as usize];
                entry.wants_to_stay = Some(disable);
                let cpu = entry.cpu;
                if entry.on_cpu {
                    self.enter(cpu, Op::Migration(task, disable));
                }
            }
            Change::RcuSection(task, inside) => self.enter(0, Op::RcuSection(task, inside)),
            Change::VcpuIoctl(vm, task, inside) => self.model.vcpu_ioctl(self.vm_refs[vm], task, inside),
            Change::End(task) => {
                self.tasks[task as usize].ending = true;
                if self.tasks[task as usize].on_cpu {
                    let cpu = self.tasks[task as usize].cpu;
                    if self.cpus[cpu as usize].busy.is_none() {
                        self.act(cpu);
                        self.pump(cpu);
                    }
                } else if !self.model.is_runnable(task) {
                    self.wake_later(task, self.now + 1);
                }
            }
            Change::Begin(spec) => {
                self.task(*spec);
            }
            Change::BeginVm(spec) => {
                self.vm(*spec);
            }
            Change::Class(vm, class) => {
                self.vms[vm].spec.class = class;
                self.classify();
            }
            Change::Yield(cpu) => self.enter(cpu, Op::Yield),
            Change::DeviceIrq(cpu, task) => self.enter(cpu, Op::Accept(task, DEVICE_VECTOR)),
            Change::Prefer(cpus) => {
                self.preferred.clone_from(&cpus);
                self.tasks.iter_mut().for_each(|task| task.allowed_since = self.now);
                if let Err(e) = self.prefer(&cpus) {
                    self.findings.add("prefer", || e.to_string());
                }
                self.enter(0, Op::Prefer);
            }
        }
    }
}
