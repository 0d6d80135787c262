// SPDX-License-Identifier: GPL-2.0-only
//! A host: time, events, CPUs, and the tasks on them.
//!
//! An event happens at a time and makes some CPU do something: a task reaches the end of what it was at, a tick, a timer,
//! an interrupt. What a CPU does in the kernel is an operation ([`crate::ops`]); a CPU does one at a time, in order, and
//! its task makes no progress meanwhile.

use crate::check::{Bounds, Findings};
use crate::guest::{Vm, VmSpec};
use crate::model::{Cost, CpuMask, Effect, GroupRef, MASK_WORDS, Model, NONE, OBJECT, OUTSIDE, Pause, VmRef};
use crate::ops::{Interrupted, Op, Outcome, Runner};
use crate::trace::Trace;
use anyhow::{Result, bail};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ffi::CStr;
use std::ops::Range;
use std::rc::Rc;

/// What a switch costs the task that comes, ns; an exit of a vCPU to KVM; an interrupt between CPUs, on its way.
pub const SWITCH_NS: u64 = 1500;
/// See [`SWITCH_NS`].
pub const EXIT_NS: u64 = 2000;
/// See [`SWITCH_NS`].
pub const IPI_NS: u64 = 700;

/// The vector of [`Change::DeviceIrq`].
const DEVICE_VECTOR: u32 = 0x31;

/// A kernel's version as in `LINUX_KERNEL_VERSION`.
pub const fn kernel(major: i32, minor: i32) -> i32 {
    (major << 16) | (minor << 8)
}

/// A host and how it runs.
#[derive(Clone, Debug)]
pub struct Host {
    /// 1 to 1,024.
    pub cpus: u32,
    /// Last-level caches; consecutive CPUs share one.
    pub llcs: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Threads of a core, consecutive CPUs.
    pub smt: u32,
    /// See [`kernel`].
    pub version: i32,
    /// Ticks per second.
    pub hz: u32,
    /// Seed of every choice.
    pub seed: u64,
    /// Programs are interrupted at one in so many calls; 0: never.
    pub interleave: u32,
    /// Longest such interruption, ns: what an NMI, or a hypervisor below, may take.
    pub pause_ns: u64,
    /// Programs are always interrupted in this kfunc, and for twenty times as long.
    pub dwell_in: Option<&'static CStr>,
    /// ns that a vCPU spins before it exits.
    pub window_ns: u64,
    /// What must hold.
    pub bounds: Bounds,
    /// ns that are traced in words.
    pub traced: Range<u64>,
    /// Variables of the scheduler that are set before it is loaded.
    pub set: Vec<(String, u64)>,
    /// Allocations fail, one in so many; 0: never.
    pub starve: u32,
    /// The object to load instead of the crate's own.
    pub object: Option<Vec<u8>>,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            cpus: 4,
            llcs: 1,
            nodes: 1,
            smt: 1,
            version: kernel(6, 18),
            hz: 250,
            seed: 1,
            interleave: 0,
            pause_ns: 2000,
            dwell_in: None,
            window_ns: 20_000,
            bounds: Bounds::default(),
            traced: 0..0,
            set: Vec::new(),
            starve: 0,
            object: None,
        }
    }
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs whenever it may.
    Hog,
    /// Runs for so many ns, sleeps for so many, both varied by a half.
    Sleeper(u64, u64),
    /// Runs for so many ns, woken every so many by CPU 0, at once with all others of the same period.
    Periodic(u64, u64),
    /// As a sleeper, of a higher class, on the one CPU that it is bound to.
    RealTime(u64, u64),
    /// A vCPU: VM and number.
    Vcpu(usize, usize),
}

/// A task to be made.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Name in tables and traces.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// 100 is nice 0.
    pub weight: u32,
    /// 0: normal, 5: `SCHED_IDLE`.
    pub policy: u32,
    /// CPUs that it may use; none: all.
    pub cpus: Option<Vec<u32>>,
    /// Its group by number; none: the root.
    pub group: Option<usize>,
    /// Its process; 0: its own.
    pub tgid: u32,
}

impl TaskSpec {
    /// A task of nice 0 that may run anywhere, in the root group.
    pub fn new(name: &str, kind: Kind) -> TaskSpec {
        TaskSpec { name: name.into(), kind, weight: 100, policy: 0, cpus: None, group: None, tgid: 0 }
    }
}

/// Something that is changed while a host runs.
#[derive(Clone, Debug)]
pub enum Change {
    /// `cpu.weight` of a group.
    GroupWeight(usize, u32),
    /// `cpu.max` of a group: period and quota in µs; `u64::MAX`: none.
    Bandwidth(usize, u64, u64),
    /// A task's affinity.
    Affinity(u32, Vec<u32>),
    /// A task's weight (100 is nice 0) and policy.
    Weight(u32, u32, u32),
    /// A task's group.
    Group(u32, usize),
    /// `migrate_disable()`, or `_enable()`.
    Migration(u32, bool),
    /// A task ends.
    End(u32),
    /// A task begins.
    Begin(Box<TaskSpec>),
    /// A VM begins.
    BeginVm(Box<VmSpec>),
    /// The running task of a CPU yields (`sched_yield()`).
    Yield(u32),
    /// A device's interrupt for a vCPU's task arrives on a CPU, on top of what runs there.
    DeviceIrq(u32, u32),
    /// These CPUs are preferred to others (a guest's scheduler).
    Prefer(Vec<u32>),
}

/// A task that there is.
pub(crate) struct Task {
    pub spec: TaskSpec,
    pub cpu: u32,
    pub on_cpu: bool,
    pub alive: bool,
    pub ending: bool,
    /// ns of work until it sleeps, if it does.
    pub left: u64,
    /// ns of the kernel's that it owes before it goes on.
    pub overhead: u64,
    pub in_spin: bool,
    /// Is to be woken at this time.
    pub wake_at: Option<u64>,
    /// Affinities that are being set.
    pub coming: Vec<Vec<u32>>,
    pub waits_since: Option<u64>,
    pub longest_wait: u64,
    pub ran: u64,
    /// What it had run when the window began.
    pub ran_before: u64,
    /// Waits after a wake-up, in the window.
    pub latencies: Vec<u64>,
    pub woken_at: Option<u64>,
}

pub(crate) struct Cpu {
    pub curr: u32,
    /// Since when the running task has made progress that is not booked.
    pub since: u64,
    /// When it came.
    pub came: u64,
    pub generation: u32,
    pub todo: VecDeque<Op>,
    pub busy: Option<Interrupted>,
    pub waits: u32,
    pub idle_since: Option<u64>,
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The running task of a CPU reaches the end of what it is at; stale if the generation is another.
    Step(u32, u32),
    Tick(u32),
    Resched(u32),
    /// An interrupted operation goes on.
    GoOn(u32),
    /// An interrupt reaches a running vCPU.
    Poke(u32),
    Wake(u32),
    Timer(u32, usize, u32),
    Stopper(u32, u32),
    Change(usize),
    Check,
    WindowBegins,
}

/// What a host has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// ns that were measured.
    pub window_ns: u64,
    /// Name, CPUs that it had, longest wait in ns, of every task.
    pub tasks: Vec<TaskReport>,
    /// Every VM.
    pub vms: Vec<VmReport>,
    /// What was found wrong.
    pub findings: Findings,
    /// Events that were handled.
    pub events: u64,
    /// Switches from one task to another.
    pub switches: u64,
    /// Digest of the trace.
    pub digest: u64,
    /// Costs by callback, if they were counted.
    pub costs: Vec<Cost>,
}

/// A task's figures.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// CPUs that it had.
    pub cpus: f64,
    /// CPUs that it is entitled to; not known of who sleeps.
    pub due: Option<f64>,
    /// ns.
    pub longest_wait: u64,
    /// Waits after wake-ups, ns, in rising order.
    pub latencies: Vec<u64>,
}

/// A VM's figures.
#[derive(Clone, Debug)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// CPUs that its vCPUs had.
    pub cpus: f64,
    /// What they are entitled to; not known of VMs that halt.
    pub due: Option<f64>,
    /// Units of its work per second.
    pub units: f64,
    /// ns.
    pub longest_wait: u64,
    /// What the scheduler has booked for it, ns, since the start, and the truth.
    pub booked: (u64, u64),
    /// Entries that the scheduler has for its process.
    pub entries: u32,
}

/// A host that runs.
pub struct World {
    pub(crate) host: Host,
    pub(crate) model: Rc<Model>,
    runner: Runner,
    pub(crate) now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vm_refs: Vec<VmRef>,
    pub(crate) groups: Vec<(GroupRef, Option<usize>, u32, f64)>,
    changes: Vec<Change>,
    /// What was found wrong so far.
    pub findings: Findings,
    /// What happened.
    pub trace: Trace,
    events: u64,
    switches: u64,
    window_from: u64,
    next_pid: u32,
    ended: bool,
    /// Reschedules of other CPUs that directed yields have caused by themselves (`yield_to()`).
    pub yield_kicks: u64,
}

fn mask_of(cpus: Option<&Vec<u32>>, all: u32) -> CpuMask {
    let mut mask = [0; MASK_WORDS];
    let mut put = |cpu: u32| mask[cpu as usize / 64] |= 1 << (cpu % 64);
    match cpus {
        Some(list) => list.iter().copied().for_each(&mut put),
        None => (0..all).for_each(&mut put),
    }
    mask
}

impl World {
    /// A host without tasks.
    ///
    /// # Errors
    /// The object cannot be loaded, the host is impossible, or the scheduler refuses it.
    pub fn new(host: Host) -> Result<World> {
        if host.cpus == 0 || host.cpus > 1024 || host.llcs == 0 || host.llcs > host.cpus {
            bail!("{} CPUs with {} LLCs are no host: 1 to 1024 CPUs", host.cpus, host.llcs);
        }
        let model = Rc::new(Model::load(host.object.as_deref().unwrap_or(OBJECT))?);
        OUTSIDE.with(|outside| {
            outside.now.set(0);
            outside.seed.set(host.seed ^ 0x5eed);
            outside.effects.borrow_mut().clear();
            outside.pause.set(None);
        });
        let (llc_size, node_size) = (host.cpus.div_ceil(host.llcs), host.cpus.div_ceil(host.nodes.max(1)));
        model.set::<u32>("nr_cpus", 0, host.cpus)?;
        model.set::<u32>("nr_llcs", 0, host.llcs)?;
        for cpu in 0..host.cpus {
            let llc = cpu / llc_size;
            let size = llc_size.min(host.cpus - llc * llc_size);
            model.set::<u32>("cpu_llc", cpu as usize, llc)?;
            model.set::<u32>("llc_cpus", llc as usize, size)?;
            model.topology(cpu, cpu - cpu % host.smt.max(1), llc * llc_size, cpu - cpu % node_size);
        }
        model.init(host.cpus, host.version, host.interleave > 0);
        model.set::<bool>("sends_seen", 0, true)?;
        model.set::<bool>("ends_seen", 0, true)?;
        model.set::<u32>("gang_choice", 0, 0)?;
        for (name, value) in &host.set {
            // Only 64-bit and 32-bit variables are tunable; ours say so in their names.
            match name.ends_with("_ns") {
                true => model.set::<u64>(name, 0, *value)?,
                false => model.set::<u32>(name, 0, *value as u32)?,
            }
        }
        let cpus = (0..host.cpus).map(|_| Cpu {
            curr: NONE,
            since: 0,
            came: 0,
            generation: 0,
            todo: VecDeque::new(),
            busy: None,
            waits: 0,
            idle_since: Some(0),
            why: "start",
        });
        let mut world = World {
            runner: Runner::new(model.clone(), host.interleave > 0, host.interleave),
            now: 0,
            heap: BinaryHeap::new(),
            sequence: 0,
            rng: Pcg64Mcg::seed_from_u64(host.seed),
            cpus: cpus.collect(),
            tasks: Vec::new(),
            vms: Vec::new(),
            vm_refs: Vec::new(),
            groups: Vec::new(),
            changes: Vec::new(),
            findings: Findings::default(),
            trace: Trace::new(host.traced.clone()),
            events: 0,
            switches: 0,
            window_from: 0,
            next_pid: 100,
            ended: false,
            yield_kicks: 0,
            model,
            host,
        };
        let guest = world.host.set.iter().any(|(name, value)| name == "may_prefer" && *value != 0);
        let root = world.model.new_group(0, None, 100, 1);
        world.groups.push((root, None, 100, f64::INFINITY));
        if world.model.start(guest) != 0 {
            bail!("the scheduler refuses to start on {} CPUs", world.host.cpus);
        }
        world.model.starve(world.host.starve);
        if let Some(kfunc) = world.host.dwell_in {
            world.model.dwell_in(kfunc);
        }
        let tick = world.tick_ns();
        for cpu in 0..world.host.cpus {
            let first = 1 + world.rng.next_u64() % tick;
            world.push(first, Event::Tick(cpu));
        }
        world.push(1_000_000, Event::Check);
        Ok(world)
    }

    fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.host.hz)
    }

    fn push(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, event)));
    }

    /// Makes a group below another (0 is the root), and returns its number.
    pub fn group(&mut self, parent: usize, weight: u32) -> usize {
        let id = self.groups.len() as u64 + 1;
        let made = self.model.new_group(0, Some(self.groups[parent].0), weight, id);
        self.groups.push((made, Some(parent), weight, f64::INFINITY));
        self.groups.len() - 1
    }

    /// Makes a task; it wakes up a moment later.
    pub fn task(&mut self, spec: TaskSpec) -> u32 {
        let mask = mask_of(spec.cpus.as_ref(), self.host.cpus);
        let allowed: Vec<u32> = spec.cpus.clone().unwrap_or_else(|| (0..self.host.cpus).collect());
        let on = allowed[self.rng.next_u32() as usize % allowed.len()];
        let pid = self.next_pid;
        self.next_pid += 1;
        let tgid = if spec.tgid == 0 { pid } else { spec.tgid };
        let group = spec.group.map(|nth| self.groups[nth].0);
        let higher = matches!(spec.kind, Kind::RealTime(..));
        let id = self.model.new_task(0, on, pid, tgid, spec.weight, spec.policy, higher, &mask, group);
        let left = self.work_of(&spec.kind);
        self.tasks.push(Task {
            spec,
            cpu: on,
            on_cpu: false,
            alive: true,
            ending: false,
            left,
            overhead: 0,
            in_spin: false,
            wake_at: None,
            coming: Vec::new(),
            waits_since: None,
            longest_wait: 0,
            ran: 0,
            ran_before: 0,
            latencies: Vec::new(),
            woken_at: None,
        });
        self.drain(0);
        let at = self.now + 1 + self.rng.next_u64() % 500_000;
        self.wake_later(id, at);
        id
    }

    pub(crate) fn wake_later(&mut self, task: u32, at: u64) {
        self.tasks[task as usize].wake_at = Some(at);
        self.push(at, Event::Wake(task));
    }

    fn varied(&mut self, mean: u64) -> u64 {
        (mean / 2 + self.rng.next_u64() % (mean + 1)).max(100)
    }

    fn work_of(&mut self, kind: &Kind) -> u64 {
        match kind {
            Kind::Sleeper(run, _) | Kind::RealTime(run, _) => self.varied(*run),
            Kind::Periodic(run, _) => *run,
            _ => u64::MAX,
        }
    }

    /// Makes a VM with its vCPUs, and returns its number.
    pub fn vm(&mut self, spec: VmSpec) -> usize {
        let nth = self.vms.len();
        let tgid = if spec.tgid == 0 { self.next_pid } else { spec.tgid };
        self.next_pid += 1;
        self.vm_refs.push(self.model.new_vm(spec.vcpus));
        self.vms.push(Vm::new(spec.clone(), tgid));
        for id in 0..spec.vcpus as usize {
            let group = match (spec.group, spec.group_per_vcpu) {
                (Some(parent), true) => Some(self.group(parent, 100)),
                (group, _) => group,
            };
            let task = TaskSpec {
                cpus: spec.cpus.clone(),
                group,
                tgid,
                ..TaskSpec::new(&format!("{}/{id}", spec.name), Kind::Vcpu(nth, id))
            };
            let task = self.task(task);
            self.model.new_vcpu(self.vm_refs[nth], task);
            self.add_vcpu(nth, task);
        }
        nth
    }

    /// A running vCPU looks, a moment later, whether what it waits for has come.
    pub(crate) fn poke(&mut self, task: u32) {
        self.push(self.now + 100, Event::Poke(task));
    }

    /// Makes a change at a time.
    pub fn at(&mut self, ns: u64, change: Change) {
        self.changes.push(change);
        self.push(ns, Event::Change(self.changes.len() - 1));
    }

    /// Begins the window in which shares are measured.
    pub fn measure_from(&mut self, ns: u64) {
        self.push(ns, Event::WindowBegins);
    }

    /// A counter of a VM's, by its place in `struct ovb_vm_stats`.
    pub fn vm_counter(&self, vm: usize, word: u32) -> u64 {
        self.model.vm_counter(self.vms[vm].tgid, word)
    }

    /// How often each vCPU of a VM was run after a directed yield.
    pub fn boosts(&self, vm: usize) -> Vec<u64> {
        (0..self.vms[vm].vcpus.len() as u32).map(|id| self.model.boosts(self.vms[vm].tgid, id)).collect()
    }

    /// The tasks of a VM's vCPUs.
    pub fn vcpu_tasks(&self, vm: usize) -> Vec<u32> {
        self.vms[vm].vcpus.iter().map(|vcpu| vcpu.task).collect()
    }

    /// ns that yielders have granted to their targets, and what of it was used or paid back. Only where all weights are
    /// those of nice 0.
    pub fn grants(&self) -> (u64, u64) {
        self.model.grants()
    }

    /// Whether a CPU runs a task now.
    pub fn runs(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].curr != NONE
    }

    /// Begins or ends the counting of costs.
    pub fn count_costs(&mut self, on: bool) {
        self.model.count(on);
    }

    /// Runs until a time, or until something is found that ends a host.
    pub fn run(&mut self, until: u64) {
        while let Some(Reverse((at, _, _))) = self.heap.peek() {
            if *at > until || self.ended {
                break;
            }
            let Some(Reverse((at, _, event))) = self.heap.pop() else { break };
            self.now = at;
            self.events += 1;
            OUTSIDE.with(|outside| outside.now.set(at));
            self.handle(event);
        }
        self.now = until;
        for cpu in 0..self.host.cpus {
            self.book(cpu);
        }
    }

    fn handle(&mut self, event: Event) {
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
            Event::WindowBegins => {
                for cpu in 0..self.host.cpus {
                    self.book(cpu);
                }
                self.window_from = self.now;
                for task in &mut self.tasks {
                    task.ran_before = task.ran;
                    task.latencies.clear();
                    task.longest_wait = 0;
                }
                for vcpu in self.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                    vcpu.units = 0;
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
        let cpu = if matches!(entry.spec.kind, Kind::Periodic(..)) { 0 } else { entry.cpu };
        if let Kind::Vcpu(vm, nth) = entry.spec.kind {
            self.vms[vm].vcpus[nth].woken = true;
        }
        self.enter(cpu, Op::Wake(task));
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
            Op::Sleep | Op::Spin | Op::Resumed | Op::Yield | Op::Eoi(..) if curr == NONE => None,
            Op::Eoi(task, ..) if task != curr => Some(op),
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
            Op::Wake(task) => {
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
                self.cpus[cpu as usize].todo.push_back(Op::Wake(*task));
            }
            Op::End(task) => self.tasks[*task as usize].alive = false,
            Op::Affinity(task, _) => {
                let entry = &mut self.tasks[*task as usize];
                entry.spec.cpus = Some(entry.coming.remove(0));
            }
            _ => {}
        }
    }

    /// Takes note of what an operation has led to.
    fn drain(&mut self, cpu: u32) {
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
                        text.push_str(&format!("{} in {dsq:#x}", self.tasks[task as usize].spec.name));
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
        let entry = &mut self.tasks[next as usize];
        if entry.on_cpu {
            self.findings
                .add("twice", || format!("{} runs on CPUs {} and {cpu}", entry.spec.name, entry.cpu));
        }
        if let Some(list) =
            entry.spec.cpus.as_ref().filter(|list| !list.contains(&cpu) && entry.coming.is_empty())
        {
            let list = list.clone();
            self.findings
                .add("affinity", || format!("{} runs on CPU {cpu}, and may on {list:?}", entry.spec.name));
        }
        entry.on_cpu = true;
        entry.cpu = cpu;
        entry.overhead += SWITCH_NS;
        if let Some(since) = entry.waits_since.take() {
            entry.longest_wait = entry.longest_wait.max(now - since);
        }
        if let Some(woken) = entry.woken_at.take() {
            entry.latencies.push(now - woken);
        }
        if entry.in_spin {
            self.cpus[cpu as usize].todo.push_back(Op::Resumed);
        }
    }

    /// Books what the running task has done since it was booked last.
    pub(crate) fn book(&mut self, cpu: u32) {
        let slot = &mut self.cpus[cpu as usize];
        let elapsed = self.now - slot.since;
        slot.since = self.now;
        if slot.curr == NONE || slot.busy.is_some() {
            return;
        }
        let task = slot.curr as usize;
        let came = std::mem::replace(&mut slot.came, self.now);
        self.trace.ran(cpu, task as u32, came, self.now);
        let entry = &mut self.tasks[task];
        entry.ran += self.now - came;
        let own = elapsed.min(entry.overhead);
        entry.overhead -= own;
        match entry.spec.kind {
            Kind::Vcpu(vm, nth) => self.vcpu_ran(vm, nth, elapsed - own),
            Kind::Hog => {}
            _ => entry.left = entry.left.saturating_sub(elapsed - own),
        }
    }

    /// Lets the running task of a CPU do what it does without time passing: it ends with work that takes time, or with
    /// operations that are still to be done.
    pub(crate) fn act(&mut self, cpu: u32) {
        self.book(cpu);
        let curr = self.cpus[cpu as usize].curr;
        if curr == NONE || !self.cpus[cpu as usize].todo.is_empty() {
            return;
        }
        let entry = &mut self.tasks[curr as usize];
        if entry.overhead > 0 {
            return;
        }
        if entry.ending {
            self.model.set_exiting(curr);
            let todo = &mut self.cpus[cpu as usize].todo;
            todo.push_back(Op::Sleep);
            todo.push_back(Op::End(curr));
            return;
        }
        match entry.spec.kind {
            Kind::Hog => {}
            Kind::Sleeper(_, time) | Kind::RealTime(_, time) | Kind::Periodic(_, time) => {
                if entry.left == 0 {
                    let kind = entry.spec.kind.clone();
                    self.tasks[curr as usize].left = self.work_of(&kind);
                    let at = match kind {
                        Kind::Periodic(..) => (self.now / time + 1) * time,
                        _ => self.now + self.varied(time),
                    };
                    self.wake_later(curr, at);
                    self.cpus[cpu as usize].todo.push_back(Op::Sleep);
                }
            }
            Kind::Vcpu(vm, nth) => self.vcpu_acts(cpu, curr, vm, nth),
        }
    }

    /// Plans when the running task of a CPU is to be looked at again.
    pub(crate) fn program(&mut self, cpu: u32) {
        let slot = &mut self.cpus[cpu as usize];
        slot.generation += 1;
        if slot.curr == NONE || slot.busy.is_some() {
            return;
        }
        let entry = &self.tasks[slot.curr as usize];
        let generation = slot.generation;
        let left = match entry.spec.kind {
            _ if entry.overhead > 0 => Some(entry.overhead),
            Kind::Hog => None,
            Kind::Vcpu(vm, nth) => self.vcpu_left(vm, nth),
            _ => Some(entry.left),
        };
        if let Some(left) = left {
            self.push(self.now + left.max(1), Event::Step(cpu, generation));
        }
    }

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

    fn change(&mut self, nth: usize) {
        let change = self.changes[nth].clone();
        match change {
            Change::GroupWeight(group, weight) => {
                self.groups[group].2 = weight;
                self.enter(0, Op::GroupWeight(self.groups[group].0, weight));
            }
            Change::Bandwidth(group, period, quota) => {
                self.groups[group].3 =
                    if quota == u64::MAX { f64::INFINITY } else { quota as f64 / period as f64 };
                self.enter(0, Op::Bandwidth(self.groups[group].0, period, quota));
            }
            Change::Affinity(task, cpus) => {
                let mask = Box::new(mask_of(Some(&cpus), self.host.cpus));
                self.tasks[task as usize].coming.push(cpus);
                self.enter(0, Op::Affinity(task, mask));
            }
            Change::Weight(task, weight, policy) => {
                self.tasks[task as usize].spec.weight = weight;
                self.tasks[task as usize].spec.policy = policy;
                self.enter(0, Op::Weight(task, weight, policy));
            }
            Change::Group(task, group) => {
                self.tasks[task as usize].spec.group = Some(group);
                self.enter(0, Op::Group(task, self.groups[group].0));
            }
            Change::Migration(task, disable) => self.model.migration(0, task, disable),
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
            Change::Yield(cpu) => self.enter(cpu, Op::Yield),
            Change::DeviceIrq(cpu, task) => self.enter(cpu, Op::Accept(task, DEVICE_VECTOR)),
            Change::Prefer(cpus) => {
                if let Err(e) = self.prefer(&cpus) {
                    self.findings.add("prefer", || e.to_string());
                }
                self.enter(0, Op::Prefer);
            }
        }
    }

    /// What must hold at any time.
    fn check(&mut self) {
        let bounds = self.host.bounds.clone();
        let now = self.now;
        for task in &self.tasks {
            let Some(waited) = task.waits_since.map(|since| now - since).filter(|_| task.alive) else {
                continue;
            };
            if let Some(limit) = bounds.wait_ns.filter(|limit| waited > *limit && task.spec.policy != 5) {
                self.findings.add("wait", || {
                    format!(
                        "{} has waited for {:.1} ms at {:.1} ms; the bound is {:.1}",
                        task.spec.name,
                        waited as f64 / 1e6,
                        now as f64 / 1e6,
                        limit as f64 / 1e6
                    )
                });
            }
        }
        let Some(limit) = bounds.idle_ns else { return };
        let idle: Vec<u32> = (0..self.host.cpus)
            .filter(|cpu| self.cpus[*cpu as usize].idle_since.is_some_and(|since| now - since > limit))
            .collect();
        if idle.is_empty() {
            return;
        }
        for task in self.tasks.iter().filter(|task| task.alive) {
            if task.waits_since.is_none_or(|since| now - since <= limit) {
                continue;
            }
            let cpu = idle.iter().find(|cpu| task.spec.cpus.as_ref().is_none_or(|list| list.contains(cpu)));
            if let Some(cpu) = cpu {
                self.findings.add("idle", || {
                    format!("CPU {cpu} idles at {:.1} ms while {} waits", now as f64 / 1e6, task.spec.name)
                });
            }
        }
    }

    /// The longest time that anybody has waited since the window began, ns.
    pub fn report(&mut self) -> Report {
        crate::check::report(self)
    }

    pub(crate) fn window(&self) -> u64 {
        self.now - self.window_from
    }

    pub(crate) fn counters(&self) -> (u64, u64) {
        (self.events, self.switches)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for cpu in &mut self.cpus {
            if let Some(paused) = cpu.busy.take() {
                paused.forget();
            }
        }
    }
}
