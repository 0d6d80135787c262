// SPDX-License-Identifier: GPL-2.0-only
//! What happens at an event, and what a CPU does in the kernel: one operation at a time, and what follows from it.

use crate::model::NONE;
use crate::ops::{Op, Outcome};
use crate::outside::{Effect, OUTSIDE, Pause};
use crate::world::{CLASSIFY_NS, Event, IPI_NS, Kind, World};
use rand_core::RngCore;

impl World {
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Step(cpu, generation) => {
                if self.cpus[cpu as usize].generation == generation && self.cpus[cpu as usize].busy.is_none()
                {
                    self.act(cpu);
                    self.pump(cpu);
                }
            }
            Event::Tick(cpu) => {
                self.push(self.now + self.tick_ns(), Event::Tick(cpu));
                if self.cpus[cpu as usize].curr != NONE {
                    self.enter(cpu, Op::Tick);
                }
            }
            Event::Resched(cpu) => self.enter(cpu, Op::Schedule),
            Event::GoOn(cpu) => {
                if let Some(paused) = self.cpus[cpu as usize].busy.take() {
                    let outcome = self.runner.go_on(cpu, paused);
                    self.after(cpu, outcome);
                    self.pump(cpu);
                }
            }
            Event::Poke(task) => {
                let on = &self.tasks[task as usize];
                if on.on_cpu && self.cpus[on.cpu as usize].busy.is_none() {
                    let cpu = on.cpu;
                    self.act(cpu);
                    self.pump(cpu);
                }
            }
            Event::Wake(task) => {
                if self.tasks[task as usize].wake_at == Some(self.now) {
                    self.wake_now(task);
                }
            }
            Event::Stopper(cpu, task) => self.enter(cpu, Op::Stopper(task)),
            Event::Timer(cpu, node, generation) => self.enter(cpu, Op::Timer(node, generation)),
            Event::Change(nth) => self.change(nth),
            Event::Check => {
                self.push(self.now + 1_000_000, Event::Check);
                self.check();
            }
            Event::FindHomes => {
                self.push(self.now + self.host.homes_ns, Event::FindHomes);
                let found = self.model.residents().map(|vms| self.homes.look(self.now, &vms));
                for (place, home) in found.unwrap_or_default() {
                    let _ = self.model.set::<u32>("vm_homes", place as usize, home);
                }
            }
            Event::Classify => {
                self.push(self.now + CLASSIFY_NS, Event::Classify);
                self.classify();
            }
            Event::WindowBegins => {
                for cpu in 0..self.host.cpus {
                    self.book(cpu);
                }
                self.window_from = self.now;
                self.switches = 0;
                self.llc_moves = 0;
                for task in &mut self.tasks {
                    task.ran_before = task.ran;
                    task.latencies.clear();
                    task.longest_wait = 0;
                }
                for vcpu in self.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                    vcpu.units = 0;
                    vcpu.spun = 0;
                    vcpu.exits = 0;
                }
            }
        }
    }

    fn wake_now(&mut self, task: u32) {
        let entry = &mut self.tasks[task as usize];
        if !entry.alive {
            return;
        }
        // Its way to sleep has not ended yet.
        if entry.on_cpu || self.model.is_runnable(task) {
            let at = self.now + 2000;
            self.wake_later(task, at);
            return;
        }
        entry.wake_at = None;
        // One interrupt wakes all of a period; others are woken where they slept.
        let by_cpu0 = matches!(entry.spec.kind, Kind::Periodic(..));
        let cpu = if by_cpu0 { 0 } else { entry.cpu };
        if let Kind::Vcpu(vm, nth) = entry.spec.kind {
            self.vms[vm].vcpus[nth].woken = true;
        }
        self.enter(cpu, Op::Wake(task, by_cpu0 && self.host.sync));
    }

    /// A CPU enters the kernel for an operation, behind those that it has not come to yet.
    pub(crate) fn enter(&mut self, cpu: u32, op: Op) {
        self.cpus[cpu as usize].todo.push_back(op);
        self.pump(cpu);
    }

    /// Does a CPU's operations until there is none, or one is interrupted.
    pub(crate) fn pump(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].busy.is_some() {
            return;
        }
        self.book(cpu);
        self.sync_eoi(cpu);
        while let Some(op) = self.cpus[cpu as usize].todo.pop_front() {
            if self.ended {
                return;
            }
            self.cpus[cpu as usize].generation += 1;
            self.cpus[cpu as usize].why = op.name();
            if let Some(op) = self.before(cpu, op) {
                let outcome = self.runner.start(cpu, op);
                self.after(cpu, outcome);
                if self.cpus[cpu as usize].busy.is_some() {
                    return;
                }
            }
            if self.cpus[cpu as usize].todo.is_empty() {
                self.act(cpu);
            }
        }
        self.program(cpu);
    }

    /// What is decided only when an operation begins.
    fn before(&mut self, cpu: u32, op: Op) -> Option<Op> {
        let curr = self.cpus[cpu as usize].curr;
        match op {
            Op::Sleep | Op::Spin | Op::PvYield(_) | Op::Resumed | Op::Yield | Op::Eoi(..) if curr == NONE => {
                None
            }
            Op::Eoi(task, ..) if task != curr => Some(op),
            // It does so when it comes again.
            Op::Migration(task, _) if task != curr => None,
            Op::Sleep => {
                let entry = &self.tasks[curr as usize];
                if let Kind::Vcpu(vm, nth) = entry.spec.kind
                    && !entry.ending
                    && (self.model.has_irq(curr) || self.vms[vm].vcpus[nth].woken)
                {
                    return None;
                }
                Some(op)
            }
            Op::Spin => {
                self.tasks[curr as usize].in_spin = true;
                Some(op)
            }
            Op::Wake(task, _) => {
                self.tasks[task as usize].woken_at = Some(self.now);
                Some(op)
            }
            _ => Some(op),
        }
    }

    fn after(&mut self, cpu: u32, outcome: Outcome) {
        match outcome {
            Outcome::Paused(paused, why) => {
                let waits = why == Pause::Lock;
                let entry = &mut self.cpus[cpu as usize];
                entry.busy = Some(paused);
                entry.waits = if waits { entry.waits + 1 } else { 0 };
                // Some 400 ms: whoever holds it is not merely interrupted.
                if entry.waits > 80_000 {
                    let op = entry.busy.as_ref().map_or("", |paused| paused.op.name());
                    self.findings.add("deadlock", || format!("CPU {cpu} waits for a lock for ever in {op}"));
                    self.ended = true;
                }
                self.drain(cpu);
                let delay = match why {
                    Pause::Lock => 50 * u64::from(self.cpus[cpu as usize].waits.min(100)),
                    Pause::Maybe => 1 + self.rng.next_u64() % self.host.pause_ns,
                    Pause::Long => 20 * self.host.pause_ns,
                };
                self.push(self.now + delay, Event::GoOn(cpu));
            }
            Outcome::Done(op) => {
                self.cpus[cpu as usize].waits = 0;
                self.drain(cpu);
                self.cpus[cpu as usize].since = self.now;
                self.finished(cpu, &op);
                if self.model.need_resched(cpu)
                    && !self.cpus[cpu as usize].todo.iter().any(|op| matches!(op, Op::Schedule))
                {
                    self.cpus[cpu as usize].todo.push_back(Op::Schedule);
                }
            }
        }
    }

    fn finished(&mut self, cpu: u32, op: &Op) {
        let curr = self.cpus[cpu as usize].curr;
        match op {
            Op::Spin | Op::Resumed if curr != NONE => self.tasks[curr as usize].in_spin = false,
            Op::Accept(task, _) if self.tasks[*task as usize].on_cpu => {
                self.push(self.now + IPI_NS, Event::Poke(*task));
            }
            Op::Accept(task, _) if !self.model.is_runnable(*task) => {
                self.cpus[cpu as usize].todo.push_back(Op::Wake(*task, false));
            }
            // Whom the scheduler loses has been put into no queue.
            Op::Wake(task, _) if self.model.is_runnable(*task) => {
                let now = self.now;
                let entry = &mut self.tasks[*task as usize];
                if entry.waits_since.is_none()
                    && !entry.on_cpu
                    && !matches!(entry.spec.kind, Kind::RealTime(..))
                {
                    entry.waits_since = Some(now);
                }
            }
            Op::End(task) => self.tasks[*task as usize].alive = false,
            Op::Migration(task, disable) => {
                let entry = &mut self.tasks[*task as usize];
                (entry.stays, entry.allowed_since) = (*disable, self.now);
                entry.wants_to_stay = None;
            }
            Op::Affinity(task, _) => {
                let entry = &mut self.tasks[*task as usize];
                entry.spec.cpus = Some(entry.coming.remove(0));
            }
            _ => {}
        }
    }

    /// Takes note of what an operation has led to.
    pub(crate) fn drain(&mut self, cpu: u32) {
        loop {
            let effects = OUTSIDE.with(|outside| std::mem::take(&mut *outside.effects.borrow_mut()));
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.apply(cpu, effect);
            }
        }
    }

    fn apply(&mut self, cpu: u32, effect: Effect) {
        match effect {
            Effect::Resched(to) if to == cpu => {}
            Effect::Resched(to) => {
                self.yield_kicks += u64::from(self.cpus[cpu as usize].why == "spin");
                self.push(self.now + IPI_NS, Event::Resched(to));
            }
            Effect::Kick(from, to, flags) => {
                self.cpus[from as usize].todo.push_back(Op::Kick(to, flags));
                if from != cpu {
                    self.push(self.now, Event::Resched(from));
                }
            }
            Effect::Stopper(on, task) => self.push(self.now + IPI_NS, Event::Stopper(on, task)),
            Effect::Switched(on, prev, next, on_rq) => self.switch(on, prev, next, on_rq),
            Effect::Queued(task, dsq) => {
                if dsq != u64::MAX {
                    self.trace.event(self.now, cpu, "queued", task, dsq as u32, |text| {
                        text.push_str(&self.tasks[task as usize].spec.name);
                        crate::trace::queue(text, dsq);
                    });
                    let entry = &mut self.tasks[task as usize];
                    if entry.waits_since.is_none() && !entry.on_cpu {
                        entry.waits_since = Some(self.now);
                    }
                }
            }
            Effect::Timer(node, on, ns) => {
                let generation = self.model.timer_generation(node);
                self.push(self.now + ns.max(1), Event::Timer(on, node, generation));
            }
            Effect::Fault(text) => {
                self.trace.event(self.now, cpu, "FAULT", 0, 0, |line| line.push_str(&text));
                let kind = if text.contains("deadlock") { "deadlock" } else { "misuse" };
                self.findings.add(kind, || text);
                self.ended = true;
            }
        }
    }

    fn switch(&mut self, cpu: u32, prev: u32, next: u32, on_rq: bool) {
        let now = self.now;
        self.switches += 1;
        if prev != NONE {
            let came = self.cpus[cpu as usize].came;
            self.trace.ran(cpu, prev, came, now);
            let entry = &mut self.tasks[prev as usize];
            entry.on_cpu = false;
            entry.ran += now - came;
            entry.waits_since = on_rq.then_some(now);
        }
        let slot = &mut self.cpus[cpu as usize];
        slot.curr = next;
        slot.since = now;
        slot.came = now;
        slot.idle_since = (next == NONE).then_some(now);
        let why = slot.why;
        self.trace.event(now, cpu, why, prev, next, |text| {
            let name =
                |task: u32| self.tasks.get(task as usize).map_or("idle", |task| task.spec.name.as_str());
            text.push_str(&format!("{} -> {}", name(prev), name(next)));
        });
        if next == NONE {
            return;
        }
        let size = self.host.cpus.div_ceil(self.host.llcs);
        let entry = &self.tasks[next as usize];
        if let Kind::Vcpu(vm, nth) = entry.spec.kind {
            self.llc_moves += u64::from(entry.cpu / size != cpu / size);
            self.vcpu_comes(vm, nth);
        }
        let entry = &mut self.tasks[next as usize];
        if entry.on_cpu {
            self.findings
                .add("twice", || format!("{} runs on CPUs {} and {cpu}", entry.spec.name, entry.cpu));
        }
        if !entry.may_use(cpu) && entry.coming.is_empty() {
            let list = entry.spec.cpus.clone().filter(|_| !entry.stays).unwrap_or_else(|| vec![entry.cpu]);
            self.findings
                .add("affinity", || format!("{} runs on CPU {cpu}, and may on {list:?}", entry.spec.name));
        }
        entry.on_cpu = true;
        entry.cpu = cpu;
        entry.ran_when_came = entry.ran;
        entry.overhead += self.host.switch_ns;
        if let Some(since) = entry.waits_since.take() {
            entry.longest_wait = entry.longest_wait.max(now - since);
            entry.waited += now - since;
        }
        if let Some(woken) = entry.woken_at.take() {
            entry.latencies.push(now - woken);
        }
        if let Some(disable) = entry.wants_to_stay {
            self.cpus[cpu as usize].todo.push_back(Op::Migration(next, disable));
        }
        if entry.in_spin {
            self.cpus[cpu as usize].todo.push_back(Op::Resumed);
        }
    }
}
