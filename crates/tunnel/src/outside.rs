// SPDX-License-Identifier: GPL-2.0-only
//! What the native half sees of the world: the time, chance, and whom it tells what it does.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};

/// What an operation has led to, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A CPU should look whom to run.
    Resched(u32),
    /// A CPU has asked to kick another: from, to, flags.
    Kick(u32, u32, u64),
    /// A CPU went from one task to another; the former still wants to run.
    Switched(u32, u32, u32, bool),
    /// A task was put into a queue, or taken out (`u64::MAX`).
    Queued(u32, u64),
    /// A CPU's stopper is to move a task away.
    Stopper(u32, u32),
    /// A timer of the scheduler's: node, CPU, ns from now.
    Timer(usize, u32, u64),
    /// Something that the kernel forbids.
    Fault(String),
}

/// Why an operation may stop in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It may be interrupted here.
    Maybe,
    /// It is, for long.
    Long,
    /// It waits for a lock.
    Lock,
}

/// What the native half reads of the world, on the thread that runs it.
#[derive(Default)]
pub struct Outside {
    /// ns.
    pub now: Cell<u64>,
    /// State of the generator for the native half's own choices.
    pub seed: Cell<u64>,
    /// What has happened since it was emptied last.
    pub effects: RefCell<Vec<Effect>>,
    /// Called where a program may be interrupted, is, or must wait.
    pub pause: Cell<Option<fn(Pause)>>,
}

thread_local! {
    /// Of the host that runs on this thread.
    pub static OUTSIDE: Outside = Outside::default();
}

fn effect(effect: Effect) {
    OUTSIDE.with(|outside| outside.effects.borrow_mut().push(effect));
}

extern "C" fn now() -> u64 {
    OUTSIDE.with(|outside| outside.now.get())
}

extern "C" fn random() -> u32 {
    // Vigna's splitmix64.
    OUTSIDE.with(|outside| {
        let state = outside.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        outside.seed.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    })
}

extern "C" fn resched(cpu: u32) {
    effect(Effect::Resched(cpu));
}

extern "C" fn kick(from: u32, cpu: u32, flags: u64) {
    effect(Effect::Kick(from, cpu, flags));
}

extern "C" fn switched(cpu: u32, prev: u32, next: u32, on_rq: bool) {
    effect(Effect::Switched(cpu, prev, next, on_rq));
}

extern "C" fn queued(task: u32, dsq: u64) {
    effect(Effect::Queued(task, dsq));
}

extern "C" fn stopper(cpu: u32, task: u32) {
    effect(Effect::Stopper(cpu, task));
}

extern "C" fn timer(node: usize, cpu: u32, ns: u64) {
    effect(Effect::Timer(node, cpu, ns));
}

extern "C" fn point() {
    if let Some(pause) = OUTSIDE.with(|outside| outside.pause.get()) {
        pause(Pause::Maybe);
    }
}

extern "C" fn dwell() {
    if let Some(pause) = OUTSIDE.with(|outside| outside.pause.get()) {
        pause(Pause::Long);
    }
}

extern "C" fn wait() {
    match OUTSIDE.with(|outside| outside.pause.get()) {
        Some(pause) => pause(Pause::Lock),
        None => {
            effect(Effect::Fault("a lock is held by a CPU that does nothing: it was never released".into()))
        }
    }
}

extern "C" fn fault(text: *const c_char) {
    // SAFETY: the native half passes a string of its own that ends with a zero.
    effect(Effect::Fault(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()));
}

/// `struct tun_calls`.
#[repr(C)]
pub(crate) struct Calls {
    now: extern "C" fn() -> u64,
    random: extern "C" fn() -> u32,
    resched: extern "C" fn(u32),
    kick: extern "C" fn(u32, u32, u64),
    switched: extern "C" fn(u32, u32, u32, bool),
    queued: extern "C" fn(u32, u64),
    stopper: extern "C" fn(u32, u32),
    timer: extern "C" fn(usize, u32, u64),
    point: extern "C" fn(),
    dwell: extern "C" fn(),
    wait: extern "C" fn(),
    fault: extern "C" fn(*const c_char),
}

pub(crate) static CALLS: Calls =
    Calls { now, random, resched, kick, switched, queued, stopper, timer, point, dwell, wait, fault };
