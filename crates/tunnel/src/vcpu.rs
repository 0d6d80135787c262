// SPDX-License-Identifier: GPL-2.0-only
//! How vCPUs get on with what their pattern says.

use crate::guest::{Pattern, Phase, VECTOR, Vcpu};
use crate::model::NONE;
use crate::ops::Op;
use crate::world::{Kind, World};
use rand_core::RngCore;

/// How far KVM's window grows: kvm_amd's counts 65,535 PAUSEs at the most, and begins with 3,000 (2,000 in the lab).
const WINDOW_GROWS: u64 = 32;

impl World {
    /// Gives a task what it is as the next vCPU of a VM.
    pub(crate) fn add_vcpu(&mut self, nth: usize, task: u32) {
        let vm = &mut self.vms[nth];
        let id = vm.vcpus.len();
        let phase = match vm.spec.pattern {
            Pattern::Pause => Phase::SpinForEver,
            Pattern::HaltedReceiver if id % 2 == 1 => Phase::Halted,
            _ => Phase::Outside,
        };
        let left = if vm.is_receiver(id) { u64::MAX } else { vm.outside(id, &mut self.rng) };
        let window = self.host.window_ns;
        vm.vcpus.push(Vcpu {
            task,
            phase,
            left,
            window,
            pause_left: window,
            handler: None,
            handling: Vec::new(),
            inbox: Vec::new(),
            acks: 0,
            woken: false,
            unseen_eoi: None,
            leaving: false,
            units: 0,
            spun: 0,
            exits: 0,
        });
    }

    /// A vCPU has run in the guest for some time.
    pub(crate) fn vcpu_ran(&mut self, vm: usize, nth: usize, ns: u64) {
        let spins = self.vms[vm].spins(nth);
        let vcpu = &mut self.vms[vm].vcpus[nth];
        let left = match &mut vcpu.handler {
            Some((left, _)) => left,
            None if spins => &mut vcpu.pause_left,
            None => &mut vcpu.left,
        };
        if *left != u64::MAX {
            *left = left.saturating_sub(ns);
        }
        if spins {
            vcpu.spun += ns;
        }
    }

    /// ns until a running vCPU must be looked at.
    pub(crate) fn vcpu_left(&self, vm: usize, nth: usize) -> Option<u64> {
        let vcpu = &self.vms[vm].vcpus[nth];
        let left = match vcpu.handler {
            Some((left, _)) => left,
            None if self.vms[vm].spins(nth) => vcpu.pause_left,
            None => vcpu.left,
        };
        (left != u64::MAX).then_some(left)
    }

    /// A vCPU comes to a CPU: KVM forgets by how much its window has grown.
    pub(crate) fn vcpu_comes(&mut self, vm: usize, nth: usize) {
        let vcpu = &mut self.vms[vm].vcpus[nth];
        vcpu.window = self.host.window_ns;
        vcpu.pause_left = vcpu.pause_left.min(vcpu.window);
    }

    /// What a vCPU that runs does now, until something takes time or an operation is to be done.
    pub(crate) fn vcpu_acts(&mut self, cpu: u32, task: u32, vm: usize, nth: usize) {
        for _ in 0..100 {
            if !self.vcpu_step(cpu, task, vm, nth) {
                break;
            }
        }
        let in_kernel = self.vms[vm].in_kernel(nth);
        let halted = self.vms[vm].vcpus[nth].phase == Phase::Halted;
        self.model.vcpu_mode(task, in_kernel, halted);
    }

    /// One step; false if time must pass, or an operation is to be done.
    fn vcpu_step(&mut self, cpu: u32, task: u32, vm: usize, nth: usize) -> bool {
        if std::mem::take(&mut self.vms[vm].vcpus[nth].leaving) {
            // Outside the guest: whatever has come meanwhile, it does not see.
            self.tasks[task as usize].overhead += self.host.exit_ns / 2;
            self.model.vcpu_mode(task, self.vms[vm].vcpus[nth].phase != Phase::SpinForEver, false);
            self.cpus[cpu as usize].todo.push_back(Op::Spin);
            return false;
        }
        if let Some((left, vector)) = self.vms[vm].vcpus[nth].handler {
            if left > 0 {
                return false;
            }
            self.end_handler(cpu, task, vm, nth, vector);
            return false;
        }
        if self.model.has_irq(task) {
            let vector = self.model.take_irq(task);
            let handler_ns = self.vms[vm].spec.critical_ns.max(1000);
            let vcpu = &mut self.vms[vm].vcpus[nth];
            vcpu.handling = std::mem::take(&mut vcpu.inbox);
            vcpu.handler = Some((handler_ns, vector));
            self.tasks[task as usize].overhead += self.host.exit_ns / 2;
            return false;
        }
        if self.vms[vm].spins(nth) {
            let phase = self.vms[vm].vcpus[nth].phase;
            if phase == Phase::WantLock && self.vms[vm].try_lock(nth) {
                return true;
            }
            if self.vms[vm].wait_is_over(nth) {
                self.unit(vm, nth);
                return true;
            }
            if self.vms[vm].vcpus[nth].pause_left > 0 {
                return false;
            }
            if phase == Phase::SpinForEver {
                self.vms[vm].vcpus[nth].units += 1;
            }
            let longest = WINDOW_GROWS * self.host.window_ns;
            let vcpu = &mut self.vms[vm].vcpus[nth];
            vcpu.window = (2 * vcpu.window).min(longest);
            vcpu.pause_left = vcpu.window;
            vcpu.exits += 1;
            vcpu.spun += self.host.exit_ns;
            vcpu.leaving = true;
            self.tasks[task as usize].overhead += self.host.exit_ns.div_ceil(2);
            return false;
        }
        let vcpu = &mut self.vms[vm].vcpus[nth];
        match vcpu.phase {
            Phase::Halted => {
                if std::mem::take(&mut vcpu.woken) {
                    vcpu.phase = Phase::Outside;
                    if !self.vms[vm].is_receiver(nth) {
                        self.unit(vm, nth);
                        return true;
                    }
                    self.vms[vm].vcpus[nth].phase = Phase::Halted;
                }
                self.model.vcpu_mode(task, true, true);
                self.cpus[cpu as usize].todo.push_back(Op::Sleep);
                false
            }
            _ if vcpu.left > 0 => false,
            Phase::Critical => {
                self.unlock(vm, nth);
                self.unit(vm, nth);
                true
            }
            _ => self.outside_is_over(cpu, task, vm, nth),
        }
    }

    /// A unit of work is done, and the next one begins.
    fn unit(&mut self, vm: usize, nth: usize) {
        let left = self.vms[vm].outside(nth, &mut self.rng);
        let vcpu = &mut self.vms[vm].vcpus[nth];
        // A phase is the VM's: its last vCPU counts it.
        vcpu.units += u64::from(!matches!(vcpu.phase, Phase::AwaitBarrier(_)));
        vcpu.phase = Phase::Outside;
        vcpu.left = left;
    }

    /// The work between two operations is done: the operation follows.
    fn outside_is_over(&mut self, cpu: u32, task: u32, vm: usize, nth: usize) -> bool {
        let vcpus = self.vms[vm].vcpus.len();
        self.vms[vm].vcpus[nth].pause_left = self.vms[vm].vcpus[nth].window;
        match self.vms[vm].spec.pattern {
            Pattern::Compute => {
                self.unit(vm, nth);
                true
            }
            Pattern::Lock | Pattern::Ticket => {
                self.vms[vm].vcpus[nth].phase = Phase::WantLock;
                self.vms[vm].tickets.push(nth);
                if self.vms[vm].spec.pattern == Pattern::Lock {
                    self.vms[vm].tickets.clear();
                }
                true
            }
            Pattern::Barrier => {
                let state = &mut self.vms[vm];
                state.arrived += 1;
                if state.arrived < vcpus {
                    state.vcpus[nth].phase = Phase::AwaitBarrier(state.generation);
                    return true;
                }
                state.arrived = 0;
                state.generation += 1;
                self.unit(vm, nth);
                self.poke_spinners(vm);
                true
            }
            Pattern::Ipi | Pattern::Messages if vcpus < 2 => {
                self.unit(vm, nth);
                true
            }
            Pattern::Ipi => {
                let other = (nth + 1 + self.rng.next_u32() as usize % (vcpus - 1)) % vcpus;
                self.send(cpu, task, vm, nth, &[other], true);
                false
            }
            Pattern::KernelReceiver | Pattern::UserReceiver | Pattern::HaltedReceiver => {
                self.send(cpu, task, vm, nth, &[nth + 1], true);
                false
            }
            Pattern::Shootdown => {
                let others: Vec<usize> = (0..vcpus).filter(|other| *other != nth).collect();
                self.send(cpu, task, vm, nth, &others, true);
                false
            }
            Pattern::Storm => {
                let others: Vec<usize> = (0..vcpus).filter(|other| *other != nth).collect();
                self.unit(vm, nth);
                self.send(cpu, task, vm, nth, &others, false);
                false
            }
            Pattern::Messages => {
                let next = (nth + 1) % vcpus;
                self.send(cpu, task, vm, nth, &[next], false);
                self.vms[vm].vcpus[nth].phase = Phase::Halted;
                false
            }
            Pattern::Sleeper => {
                self.vms[vm].vcpus[nth].phase = Phase::Halted;
                let spec = &self.vms[vm].spec;
                let ns = spec.sections.get(nth).map_or(spec.halt_ns, |(_, halt)| *halt);
                let at = self.now + ns / 2 + self.rng.next_u64() % (ns + 1);
                self.wake_later(task, at);
                true
            }
            Pattern::Pause => true,
        }
    }

    /// Sends IPIs, and waits for their handlers or not.
    fn send(&mut self, cpu: u32, task: u32, vm: usize, nth: usize, to: &[usize], waits: bool) {
        for other in to {
            let target = self.vms[vm].vcpus[*other].task;
            if !self.tasks[target as usize].alive {
                continue;
            }
            if waits {
                self.vms[vm].vcpus[*other].inbox.push(nth);
                self.vms[vm].vcpus[nth].acks += 1;
            }
            self.cpus[cpu as usize].todo.push_back(Op::Accept(target, VECTOR));
        }
        self.tasks[task as usize].overhead += self.host.exit_ns;
        if waits {
            self.vms[vm].vcpus[nth].phase = Phase::AwaitAcks;
            if self.vms[vm].spec.pv_yield {
                self.yield_to_preempted(cpu, vm, to);
            }
        }
    }

    /// As Linux does after IPIs to several: a yield to the first receiver that has been preempted.
    fn yield_to_preempted(&mut self, cpu: u32, vm: usize, to: &[usize]) {
        let tasks = to.iter().map(|other| self.vms[vm].vcpus[*other].task);
        let preempted = |task: &u32| !self.tasks[*task as usize].on_cpu && self.model.is_runnable(*task);
        if let Some(task) = tasks.into_iter().find(preempted) {
            self.cpus[cpu as usize].todo.push_back(Op::PvYield(task));
        }
    }

    /// A handler has ended: whoever waits for it is told.
    fn end_handler(&mut self, cpu: u32, task: u32, vm: usize, nth: usize, vector: u32) {
        let (pv_eoi, told) = (self.vms[vm].spec.pv_eoi, !self.host.apicv);
        let vcpu = &mut self.vms[vm].vcpus[nth];
        vcpu.handler = None;
        vcpu.woken = true;
        let waiting = std::mem::take(&mut vcpu.handling);
        match pv_eoi {
            true => vcpu.unseen_eoi = Some(vector),
            false => self.cpus[cpu as usize].todo.push_back(Op::Eoi(task, vector, told)),
        }
        for sender in waiting {
            let sender = &mut self.vms[vm].vcpus[sender];
            sender.acks = sender.acks.saturating_sub(1);
        }
        self.poke_spinners(vm);
    }

    /// At any exit KVM learns of an interrupt whose end was written to memory.
    pub(crate) fn sync_eoi(&mut self, cpu: u32) {
        let slot = &self.cpus[cpu as usize];
        if slot.todo.is_empty() || slot.curr == NONE {
            return;
        }
        let task = slot.curr;
        if let Kind::Vcpu(vm, nth) = self.tasks[task as usize].spec.kind
            && let Some(vector) = self.vms[vm].vcpus[nth].unseen_eoi.take()
        {
            self.cpus[cpu as usize].todo.push_front(Op::Eoi(task, vector, true));
        }
    }

    fn unlock(&mut self, vm: usize, nth: usize) {
        if self.vms[vm].holder == Some(nth) {
            self.vms[vm].holder = None;
        }
        // Whoever spins on a CPU sees it at once; which of them is first, chance says.
        let spinning: Vec<usize> = (0..self.vms[vm].vcpus.len())
            .filter(|other| *other != nth && self.vms[vm].vcpus[*other].phase == Phase::WantLock)
            .filter(|other| {
                let task = &self.tasks[self.vms[vm].vcpus[*other].task as usize];
                task.on_cpu && task.overhead == 0 && self.cpus[task.cpu as usize].busy.is_none()
            })
            .collect();
        if spinning.is_empty() {
            return;
        }
        let first = self.rng.next_u32() as usize % spinning.len();
        for i in 0..spinning.len() {
            let other = spinning[(first + i) % spinning.len()];
            if self.vms[vm].try_lock(other) {
                let task = self.vms[vm].vcpus[other].task;
                let cpu = self.tasks[task as usize].cpu;
                // Until now it has spun.
                let left = self.vms[vm].vcpus[other].left;
                self.book(cpu);
                self.vms[vm].vcpus[other].left = left;
                self.program(cpu);
                return;
            }
        }
    }

    /// Those who spin on a CPU look again, as what they wait for may have come.
    fn poke_spinners(&mut self, vm: usize) {
        for nth in 0..self.vms[vm].vcpus.len() {
            if self.vms[vm].wait_is_over(nth) {
                let task = self.vms[vm].vcpus[nth].task;
                if self.tasks[task as usize].on_cpu {
                    self.poke(task);
                }
            }
        }
    }
}
