// SPDX-License-Identifier: GPL-2.0-only
//! Operations of a CPU: one at a time, in the kernel, each in a coroutine of its own if programs may be interrupted.

use crate::host::DEVICE_VECTOR;
use crate::model::{CpuMask, GroupRef, Model};
use crate::outside::{OUTSIDE, Pause};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::rc::Rc;

/// What a CPU does in the kernel.
#[derive(Clone, Debug)]
pub enum Op {
    Schedule,
    Tick,
    /// The running task sleeps.
    Sleep,
    /// The running vCPU has spun for a window.
    Spin,
    /// The running vCPU yields to another task by name (`KVM_HC_SCHED_YIELD`).
    PvYield(u32),
    /// The running task was in a spin when it left.
    Resumed,
    /// Synchronously or not.
    Wake(u32, bool),
    /// An interrupt for a vCPU: task, vector.
    Accept(u32, u32),
    /// The running vCPU ends an interrupt: task, vector, whether KVM sees that.
    Eoi(u32, u32, bool),
    Kick(u32, u64),
    Timer(usize, u32),
    Yield,
    Stopper(u32),
    Affinity(u32, Box<CpuMask>),
    Weight(u32, u32, u32),
    Group(u32, GroupRef),
    GroupWeight(GroupRef, u32),
    GroupIdle(GroupRef, bool),
    EndGroup(GroupRef),
    Bandwidth(GroupRef, u64, u64),
    /// The running task disables its migration, or enables it.
    Migration(u32, bool),
    RcuSection(u32, bool),
    End(u32),
    Prefer,
}

impl Op {
    /// One word for traces.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Schedule => "schedule",
            Op::Tick => "tick",
            Op::Sleep => "sleep",
            Op::Spin => "spin",
            Op::PvYield(_) => "PV yield",
            Op::Resumed => "resumed",
            Op::Wake(..) => "wake",
            Op::Accept(..) => "interrupt",
            Op::Eoi(..) => "eoi",
            Op::Kick(..) => "kick",
            Op::Timer(..) => "timer",
            Op::Yield => "yield",
            Op::Stopper(_) => "stopper",
            Op::Affinity(..) => "affinity",
            Op::Weight(..) => "nice",
            Op::Group(..) => "cgroup",
            Op::GroupWeight(..) => "cpu.weight",
            Op::GroupIdle(..) => "cpu.idle",
            Op::EndGroup(_) => "rmdir",
            Op::Bandwidth(..) => "cpu.max",
            Op::Migration(..) => "migration",
            Op::RcuSection(..) => "RCU section",
            Op::End(_) => "exit",
            Op::Prefer => "prefer",
        }
    }

    fn run(&self, model: &Model, cpu: u32) {
        match self {
            Op::Schedule => {
                if model.need_resched(cpu) {
                    model.schedule(cpu);
                }
            }
            Op::Tick => model.tick(cpu),
            Op::Sleep => model.sleep(cpu),
            Op::Spin => model.spin(cpu),
            Op::PvYield(task) => model.pv_yield(cpu, *task),
            Op::Resumed => model.resumed(cpu),
            Op::Wake(task, sync) => model.wake(cpu, *task, *sync),
            Op::Accept(task, vector) => model.accept_irq(cpu, *task, *vector, *vector == DEVICE_VECTOR),
            Op::Eoi(task, vector, told) => model.eoi(cpu, *task, *vector, *told),
            Op::Kick(to, flags) => model.kick(cpu, *to, *flags),
            Op::Timer(node, generation) => model.timer_fire(cpu, *node, *generation),
            Op::Yield => model.yield_now(cpu),
            Op::Stopper(task) => model.stopper(cpu, *task),
            Op::Affinity(task, mask) => model.set_affinity(cpu, *task, mask),
            Op::Weight(task, weight, policy) => model.set_weight(cpu, *task, *weight, *policy),
            Op::Group(task, group) => model.move_group(cpu, *task, *group),
            Op::EndGroup(group) => model.end_group(cpu, *group),
            Op::GroupWeight(group, weight) => model.set_group_weight(cpu, *group, *weight),
            Op::GroupIdle(group, idle) => model.set_group_idle(cpu, *group, *idle),
            Op::Bandwidth(group, period, quota) => {
                model.set_bandwidth(cpu, *group, *period, *quota);
            }
            Op::Migration(task, disable) => model.migration(cpu, *task, *disable),
            Op::RcuSection(task, inside) => model.rcu_section(cpu, *task, *inside),
            Op::End(task) => model.end_task(cpu, *task),
            Op::Prefer => model.prefer(cpu),
        }
        model.deferred(cpu);
    }
}

thread_local! {
    static YIELDER: Cell<*const Yielder<(), Pause>> = const { Cell::new(std::ptr::null()) };
    /// A program is interrupted at one in so many points.
    static ODDS: Cell<u32> = const { Cell::new(16) };
}

/// Leaves the coroutine that runs, sometimes, or always where it must wait for a lock.
fn pause(why: Pause) {
    let yielder = YIELDER.get();
    if yielder.is_null() {
        return;
    }
    if why == Pause::Maybe {
        let seed = OUTSIDE.with(|outside| {
            let seed = outside.seed.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            outside.seed.set(seed);
            seed
        });
        if !((seed >> 33) as u32).is_multiple_of(ODDS.get()) {
            return;
        }
    }
    // SAFETY: set by the coroutine that runs, and reset whenever it is left.
    unsafe { &*yielder }.suspend(why);
}

/// An operation that was interrupted.
pub struct Interrupted {
    coroutine: Coroutine<(), Pause, ()>,
    yielder: *const Yielder<(), Pause>,
    pub op: Op,
}

impl Interrupted {
    /// Leaves it as it is for ever.
    pub fn forget(mut self) {
        // SAFETY: nothing on its stack owns anything: a copy of the operation, at most, which leaks.
        unsafe { self.coroutine.force_reset() }
    }
}

/// How far an operation has come.
pub enum Outcome {
    Done(Op),
    /// Interrupted, and why.
    Paused(Interrupted, Pause),
}

/// Runs operations.
pub struct Runner {
    pub model: Rc<Model>,
    interleave: bool,
    stacks: Vec<DefaultStack>,
}

impl Runner {
    pub fn new(model: Rc<Model>, interleave: bool, odds: u32) -> Runner {
        ODDS.set(odds.max(2));
        OUTSIDE.with(|outside| outside.pause.set(interleave.then_some(pause)));
        Runner { model, interleave, stacks: Vec::new() }
    }

    /// Begins an operation on a CPU.
    pub fn start(&mut self, cpu: u32, op: Op) -> Outcome {
        if !self.interleave {
            op.run(&self.model, cpu);
            return Outcome::Done(op);
        }
        let (model, mine) = (Rc::as_ptr(&self.model), op.clone());
        let stack = self.stacks.pop().unwrap_or_default();
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
            YIELDER.set(yielder);
            // SAFETY: whoever goes on with a coroutine is the runner, which has the model.
            mine.run(unsafe { &*model }, cpu);
        });
        self.go_on(cpu, Interrupted { coroutine, yielder: std::ptr::null(), op })
    }

    /// Goes on with an operation.
    pub fn go_on(&mut self, cpu: u32, mut paused: Interrupted) -> Outcome {
        self.model.set_cpu(cpu);
        YIELDER.set(paused.yielder);
        let result = paused.coroutine.resume(());
        paused.yielder = YIELDER.replace(std::ptr::null());
        match result {
            CoroutineResult::Yield(why) => Outcome::Paused(paused, why),
            CoroutineResult::Return(()) => {
                self.stacks.push(paused.coroutine.into_stack());
                Outcome::Done(paused.op)
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        OUTSIDE.with(|outside| {
            outside.pause.set(None);
            outside.effects.borrow_mut().clear();
        });
    }
}
