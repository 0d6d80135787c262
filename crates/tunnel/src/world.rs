// SPDX-License-Identifier: GPL-2.0-only
//! A host: time, events, CPUs, and the tasks on them.
//!
//! An event happens at a time and makes some CPU do something: a task reaches the end of what it was at, a tick, a timer,
//! an interrupt. What a CPU does in the kernel is an operation (`ops`); a CPU does one at a time, in order, and
//! its task makes no progress meanwhile.

use crate::check::Findings;
use crate::guest::{Vm, VmSpec};
pub use crate::host::*;
use crate::model::{CpuMask, GroupRef, MASK_WORDS, Model, NONE, OBJECT, VmRef};
use crate::ops::{Interrupted, Op, Runner};
use crate::outside::OUTSIDE;
use crate::trace::Trace;
use anyhow::{Result, bail};
use overbook_policy::class::Class;
use overbook_policy::home::Homes;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ffi::CStr;
use std::rc::Rc;

/// How soon the classes of VMs that have begun are told, ns.
pub(crate) const CLASSIFY_NS: u64 = 10_000_000;

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
    /// It is to disable its migration, or to enable it, when it runs next.
    pub wants_to_stay: Option<bool>,
    /// Its migration is disabled.
    pub stays: bool,
    /// Since when it has been on a CPU that is not preferred, as far as one looks every now and then.
    pub strays_since: Option<u64>,
    /// When it was last told where it may run, ns.
    pub allowed_since: u64,
    pub longest_wait: u64,
    /// ns that it was runnable and had no CPU, up to its last turn.
    pub waited: u64,
    pub ran: u64,
    /// What it had run when its present turn began.
    pub ran_when_came: u64,
    /// What it had run when the window began.
    pub ran_before: u64,
    /// Waits after a wake-up, in the window.
    pub latencies: Vec<u64>,
    pub woken_at: Option<u64>,
}

impl Task {
    /// Whether a CPU may run it.
    pub fn may_use(&self, cpu: u32) -> bool {
        let is_allowed = || self.spec.cpus.as_ref().is_none_or(|list| list.contains(&cpu));
        if self.stays { self.cpu == cpu } else { is_allowed() }
    }
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
pub(crate) enum Event {
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
    FindHomes,
    Classify,
    WindowBegins,
}

/// A host that runs.
pub struct World {
    pub(crate) host: Host,
    pub(crate) model: Rc<Model>,
    pub(crate) runner: Runner,
    pub(crate) now: u64,
    pub(crate) heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(crate) sequence: u64,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vm_refs: Vec<VmRef>,
    pub(crate) groups: Vec<(GroupRef, Option<usize>, f64, f64)>,
    pub(crate) changes: Vec<Change>,
    /// What was found wrong so far.
    pub findings: Findings,
    /// What happened.
    pub trace: Trace,
    pub(crate) events: u64,
    pub(crate) switches: u64,
    /// vCPUs that came to another LLC than they ran on last, in the window.
    pub(crate) llc_moves: u64,
    pub(crate) homes: Homes,
    /// The preferred CPUs.
    pub(crate) preferred: Vec<u32>,
    pub(crate) window_from: u64,
    next_pid: u32,
    pub(crate) ended: bool,
    /// Reschedules of other CPUs that directed yields have caused by themselves (`yield_to()`).
    pub yield_kicks: u64,
}

pub(crate) fn mask_of(cpus: Option<&Vec<u32>>, all: u32) -> CpuMask {
    let mut mask = [0; MASK_WORDS];
    let mut put = |cpu: u32| mask[cpu as usize / 64] |= 1 << (cpu % 64);
    match cpus {
        Some(list) => list.iter().copied().for_each(&mut put),
        None => (0..all).for_each(&mut put),
    }
    mask
}

/// Tells the scheduler which CPUs there are, as its loader does. Returns the CPUs of each LLC.
fn describe_cpus(model: &Model, host: &Host) -> Result<Vec<u32>> {
    let (llc_size, node_size) = (host.cpus.div_ceil(host.llcs), host.cpus.div_ceil(host.nodes.max(1)));
    let size = |llc: u32| llc_size.min(host.cpus - llc * llc_size);
    model.set::<u32>("nr_cpus", 0, host.cpus)?;
    model.set::<u32>("nr_llcs", 0, host.llcs)?;
    for cpu in 0..host.cpus {
        let llc = cpu / llc_size;
        model.set::<u32>("cpu_llc", cpu as usize, llc)?;
        let online = (host.cpus - cpu / 64 * 64).min(64);
        model.set::<u64>("cpus_online", cpu as usize / 64, u64::MAX >> (64 - online))?;
        model.set::<u32>("llc_cpus", llc as usize, size(llc))?;
        model.set::<u32>("llc_first", llc as usize, llc * llc_size)?;
        model.set::<u32>("llc_node", llc as usize, cpu / node_size)?;
        let in_llc = llc * llc_size + (cpu % llc_size + 1) % size(llc);
        // As `successors()` of the loader has it: 64 is OVB_VICTIMS.
        let next = if host.cpus > 64 { in_llc } else { (cpu + 1) % host.cpus };
        model.set::<u32>("next_victim", cpu as usize, next)?;
        model.topology(cpu, cpu - cpu % host.smt.max(1), llc * llc_size, cpu - cpu % node_size);
    }
    Ok((0..host.cpus.div_ceil(llc_size)).map(size).collect())
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
        let sizes = describe_cpus(&model, &host)?;
        model.init(host.cpus, host.version, host.interleave > 0);
        // The hardware's window, an exit and some room.
        model.set::<u64>("spin_gap_ns", 0, 2 * host.window_ns)?;
        model.set::<bool>("sends_seen", 0, true)?;
        model.set::<bool>("ends_seen", 0, !host.apicv)?;
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
            llc_moves: 0,
            homes: Homes::new(&sizes),
            preferred: (0..host.cpus).collect(),
            window_from: 0,
            next_pid: 100,
            ended: false,
            yield_kicks: 0,
            model,
            host,
        };
        let guest = world.host.set.iter().any(|(name, value)| name == "may_prefer" && *value != 0);
        let root = world.model.new_group(0, None, 100, 1);
        world.groups.push((root, None, 100.0, f64::INFINITY));
        world.model.refuse_timers(world.host.no_timers);
        if world.model.start() != 0 {
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
        // As the loader does where there are several; a guest has no VMs.
        if world.host.llcs > 1 && !guest {
            world.push(world.host.homes_ns / 50, Event::FindHomes);
        }
        Ok(world)
    }

    pub(crate) fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.host.hz)
    }

    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, event)));
    }

    /// Makes a group below another (0 is the root), and returns its number.
    pub fn group(&mut self, parent: usize, weight: u32) -> usize {
        let id = self.groups.len() as u64 + 1;
        let made = self.model.new_group(0, Some(self.groups[parent].0), weight, id);
        self.groups.push((made, Some(parent), f64::from(weight), f64::INFINITY));
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
        let higher = match spec.kind {
            Kind::RealTime(..) => true,
            Kind::Vcpu(vm, id) => id < self.vms[vm].spec.real_time as usize,
            _ => false,
        };
        let asleep = spec.asleep;
        let id = self.model.new_task(0, on, pid, tgid, spec.weight, spec.policy, higher, &mask, group);
        let left = self.work_of(&spec.kind);
        self.trace.event(self.now, on, "task", id, 0, |text| text.push_str(&spec.words()));
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
            wants_to_stay: None,
            stays: false,
            strays_since: None,
            allowed_since: 0,
            longest_wait: 0,
            waited: 0,
            ran: 0,
            ran_when_came: 0,
            ran_before: 0,
            latencies: Vec::new(),
            woken_at: None,
        });
        self.drain(0);
        if !asleep {
            let at = self.now + 1 + self.rng.next_u64() % 500_000;
            self.wake_later(id, at);
        }
        id
    }

    /// A task that leads a process and sleeps, as QEMU's main thread may while its guest computes; its process.
    pub fn leader(&mut self, name: &str, group: Option<usize>) -> u32 {
        self.process(TaskSpec { group, asleep: true, ..TaskSpec::new(name, Kind::Hog) })
    }

    /// A task that leads a process; its process.
    pub fn process(&mut self, spec: TaskSpec) -> u32 {
        let pid = self.next_pid;
        self.task(spec);
        pid
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
        if spec.class != Class::Normal && !self.vms.iter().any(|vm| vm.spec.class != Class::Normal) {
            self.push(self.now + CLASSIFY_NS, Event::Classify);
        }
        let tgid = if spec.tgid == 0 { self.next_pid } else { spec.tgid };
        self.next_pid += 1;
        self.vm_refs.push(self.model.new_vm(spec.vcpus));
        self.vms.push(Vm::new(spec.clone(), tgid));
        let mut below = Vec::new();
        for id in 0..spec.vcpus as usize {
            let mut group = spec.group;
            if let (Some(parent), 1..) = (group, spec.groups_below) {
                if id < spec.groups_below as usize {
                    below.push(self.group(parent, 100));
                }
                group = Some(below[id % below.len()]);
            }
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

    /// A counter of a VM's; native/glue.c has their names.
    pub fn vm_counter(&self, vm: usize, name: &CStr) -> u64 {
        self.model.vm_counter(self.vms[vm].tgid, name)
    }

    /// How often a running task was sent to another CPU, as who waited for its own may use few.
    pub fn spread(&self) -> u64 {
        self.model.spread()
    }

    /// How often each vCPU of a VM was run after a directed yield.
    pub fn boosts(&self, vm: usize) -> Vec<u64> {
        (0..self.vms[vm].vcpus.len() as u32).map(|id| self.model.boosts(self.vms[vm].tgid, id)).collect()
    }

    /// The tasks of a VM's vCPUs.
    pub fn vcpu_tasks(&self, vm: usize) -> Vec<u32> {
        self.vms[vm].vcpus.iter().map(|vcpu| vcpu.task).collect()
    }

    /// ns that a task ran, and that it was runnable and had no CPU, since its start.
    pub fn ran_and_waited(&self, task: u32) -> (u64, u64) {
        let task = &self.tasks[task as usize];
        (task.ran, task.waited + task.waits_since.map_or(0, |since| self.now - since))
    }

    /// Whether a CPU runs a task now.
    pub fn runs(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].curr != NONE
    }

    /// Begins or ends the counting of costs.
    pub fn count_costs(&mut self, on: bool) {
        self.model.count(on);
    }

    /// Sets a variable of the scheduler, of 64 bits or 32.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn tune(&self, name: &str, value: u64, wide: bool) -> Result<()> {
        match wide {
            true => self.model.set::<u64>(name, 0, value),
            false => self.model.set::<u32>(name, 0, value as u32),
        }
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

    pub(crate) fn window(&self) -> u64 {
        self.now - self.window_from
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
