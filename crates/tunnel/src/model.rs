// SPDX-License-Identifier: GPL-2.0-only
//! The native half, loaded: a kernel with sched_ext, and the scheduler on it. Every [`Model`] has a copy of its own, so
//! hosts do not disturb each other, on whatever threads.

use crate::outside::{CALLS, Calls};
use anyhow::{Context, Result, bail};
use libloading::Library;
use overbook_policy::home::Resident;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::io::Write;
use std::mem::size_of;
use std::os::fd::AsRawFd;

/// No task.
pub const NONE: u32 = u32::MAX;

/// CPUs that a model may have.
pub const MAX_CPUS: usize = 1024;

/// Words of a mask of CPUs.
pub const MASK_WORDS: usize = MAX_CPUS / 64;

/// CPUs, a bit each.
pub type CpuMask = [u64; MASK_WORDS];

/// `struct tun_cost`.
#[repr(C)]
struct RawCost {
    name: *const c_char,
    calls: u64,
    kfuncs: u64,
    atomics: u64,
    locks: u64,
    steps: u64,
    shared_lines: u64,
    most: u64,
}

/// `struct tun_line`.
#[repr(C)]
struct RawLine {
    callback: *const c_char,
    name: *const c_char,
    offset: u32,
    writes: u64,
}

/// A line that a callback writes and other CPUs write too; counted only in an object that is built for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLine {
    /// The operation or program.
    pub callback: String,
    /// The variable or map, and how many bytes the line is from where it, or a value of it, begins.
    pub name: String,
    /// How often it was written after another CPU had written it.
    pub writes: u64,
}

/// What one callback has cost, in all its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The operation or program.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// Helpers and kfuncs that it called.
    pub kfuncs: u64,
    /// Atomic operations.
    pub atomics: u64,
    /// Locks of queues that it took.
    pub locks: u64,
    /// Tasks that were passed over in queues.
    pub steps: u64,
    /// Writes to lines that another CPU had written last; only of an object built to count them.
    pub shared_lines: u64,
    /// Most calls and passed-over tasks of one call.
    pub most: u64,
}

/// A cgroup of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRef(usize);

/// A VM of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmRef(usize);

macro_rules! functions {
    ($($name:ident($($arg:ty),*) $(-> $out:ty)?;)*) => {
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $out)?,)* }

        impl Functions {
            fn load(library: &Library) -> Result<Functions> {
                // SAFETY: the names and types are those of native/*.c; a test calls each.
                unsafe { Ok(Functions { $($name: *library.get(concat!("tun_", stringify!($name)).as_bytes())
                    .with_context(|| concat!("the model has no tun_", stringify!($name)))?,)* }) }
            }
        }
    };
}

functions! {
    init(u32, c_int, bool, *const Calls);
    end();
    topology(u32, u32, u32, u32);
    start() -> i32;
    set_cpu(u32);
    schedule(u32);
    sleep(u32);
    wake(u32, u32, bool);
    tick(u32);
    plain_yield(u32);
    deferred(u32);
    kick(u32, u32, u64);
    stopper(u32, u32);
    spin(u32);
    pv_yield(u32, u32);
    resumed(u32);
    set_affinity(u32, u32, *const c_ulong);
    set_weight(u32, u32, u32, u32);
    move_group(u32, u32, usize);
    migration(u32, u32, bool);
    rcu_section(u32, u32, bool);
    new_task(u32, u32, u32, u32, u32, u32, bool, *const c_ulong, usize) -> u32;
    end_task(u32, u32);
    set_exiting(u32);
    new_group(u32, usize, u32, u64) -> usize;
    end_group(u32, usize);
    set_group_weight(u32, usize, u32);
    set_group_idle(u32, usize, bool);
    set_bandwidth(u32, usize, u64, u64) -> bool;
    new_vm(u32) -> usize;
    new_vcpu(usize, u32);
    vcpu_ioctl(usize, u32, bool);
    vcpu_mode(u32, bool, bool);
    accept_irq(u32, u32, u32, bool);
    take_irq(u32) -> u32;
    has_irq(u32) -> bool;
    eoi(u32, u32, u32, bool);
    timer_generation(usize) -> u32;
    timer_fire(u32, usize, u32);
    starve(u32);
    refuse_timers(u32);
    dwell(*const c_char);
    dsq_of(u32) -> u64;
    is_runnable(u32) -> bool;
    need_resched(u32) -> bool;
    booked(u32, *mut u32) -> u64;
    vm_at(u32, *mut u32, *mut u64, *mut u64) -> u32;
    vm_counter(u32, *const c_char) -> u64;
    spread() -> u64;
    marks(u32) -> u32;
    boosts(u32, u32) -> u64;
    lost_relations() -> u32;
    prefer(u32);
    count(bool);
    costs(*mut *const RawCost) -> u32;
    lines(*mut *const RawLine) -> u32;
}

/// The object that was built with this crate.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/model.so"));

/// A kernel with the scheduler on it. Its functions are those of `native/*.c`; each runs on the CPU that it names.
pub struct Model {
    library: Library,
    functions: Functions,
    /// Open for as long as the library is loaded: the loader knows libraries by name, which is that of the descriptor.
    _file: memfd::Memfd,
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: nobody else has the model, and nothing of it is used any more.
        unsafe { (self.functions.end)() }
    }
}

/// Defines methods that pass their arguments on.
macro_rules! pass {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)?;)*) => {
        $($(#[$doc])*
        pub fn $name(&self, $($arg: $kind),*) $(-> $out)? {
            // SAFETY: ids and CPUs come from this model; it is used by one thread at a time, as it is not Sync.
            unsafe { (self.functions.$name)($($arg),*) }
        })*
    };
}

impl Model {
    /// Loads a copy of an object.
    ///
    /// # Errors
    /// The system cannot load it.
    pub fn load(object: &[u8]) -> Result<Model> {
        let file = memfd::MemfdOptions::default().create("tunnel").context("cannot make a file in memory")?;
        file.as_file().write_all(object).context("cannot write to a file in memory")?;
        let path = format!("/proc/self/fd/{}", file.as_file().as_raw_fd());
        // SAFETY: the object has no initializers.
        let library = unsafe { Library::new(path) }.context("the model's object cannot be loaded")?;
        let functions = Functions::load(&library)?;
        Ok(Model { library, functions, _file: file })
    }

    /// Begins: CPUs, kernel as in `LINUX_KERNEL_VERSION`, and whether programs are interrupted.
    pub fn init(&self, cpus: u32, version: i32, interleave: bool) {
        // SAFETY: as below; the table lives for ever.
        unsafe { (self.functions.init)(cpus, version, interleave, &CALLS) }
    }

    /// Writes one of the scheduler's global variables, as the loader does, at an index if it is an array.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn set<T: Copy>(&self, name: &str, index: usize, value: T) -> Result<()> {
        let at = self.variable(name)?;
        let at = at + index * size_of::<T>();
        let page = at & !4095;
        // SAFETY: the pages are the object's own: read-only data that only this model reads.
        let failed = unsafe {
            libc::mprotect(
                page as *mut c_void,
                at + size_of::<T>() - page,
                libc::PROT_READ | libc::PROT_WRITE,
            ) != 0
        };
        if failed {
            bail!("cannot write to {name}");
        }
        // SAFETY: the variable has this type, as the caller knows from the sources, and nobody else looks.
        unsafe { (at as *mut T).write_volatile(value) };
        Ok(())
    }

    /// Reads one of the scheduler's global variables.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn get<T: Copy>(&self, name: &str, index: usize) -> Result<T> {
        let at = self.variable(name)? + index * size_of::<T>();
        // SAFETY: as in `set`.
        Ok(unsafe { (at as *const T).read_volatile() })
    }

    fn variable(&self, name: &str) -> Result<usize> {
        // SAFETY: only the address is taken.
        let symbol = unsafe { self.library.get::<*mut c_void>(name.as_bytes()) };
        let symbol = symbol.with_context(|| format!("the scheduler has no variable {name}"))?;
        // SAFETY: the symbol's address is what the loader found.
        Ok(unsafe { symbol.into_raw() }.as_raw_ptr() as usize)
    }

    /// The costs since counting began, by callback.
    pub fn costs(&self) -> Vec<Cost> {
        let mut list = std::ptr::null();
        // SAFETY: the list is the model's own and stays where it is.
        let raw = unsafe {
            let n = (self.functions.costs)(&mut list);
            std::slice::from_raw_parts(
                if n == 0 { std::ptr::NonNull::dangling().as_ptr() } else { list },
                n as usize,
            )
        };
        raw.iter()
            .map(|raw| Cost {
                // SAFETY: a constant string of the object.
                name: unsafe { CStr::from_ptr(raw.name) }.to_string_lossy().into_owned(),
                calls: raw.calls,
                kfuncs: raw.kfuncs,
                atomics: raw.atomics,
                locks: raw.locks,
                steps: raw.steps,
                shared_lines: raw.shared_lines,
                most: raw.most,
            })
            .collect()
    }

    /// The lines that callbacks have written and that other CPUs write too, since counting began.
    pub fn shared_lines(&self) -> Vec<SharedLine> {
        let mut list = std::ptr::null();
        // SAFETY: as in `costs`.
        let raw = unsafe {
            let n = (self.functions.lines)(&mut list);
            std::slice::from_raw_parts(
                if n == 0 { std::ptr::NonNull::dangling().as_ptr() } else { list },
                n as usize,
            )
        };
        // SAFETY: constant strings of the object.
        let text = |at| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
        raw.iter()
            .map(|raw| SharedLine {
                callback: text(raw.callback),
                name: format!("{}+{}", text(raw.name), raw.offset),
                writes: raw.writes,
            })
            .collect()
    }

    /// The VMs that live, as the loader reads them.
    pub fn residents(&self) -> Result<Vec<Resident>> {
        let (mut all, used) = (Vec::new(), self.get::<u32>("vms_used", 0)?);
        for place in 0..used {
            let (mut vcpus, mut wanted_ns, mut llcs) = (0, 0, 0);
            // SAFETY: as in `pass!`.
            let pid = unsafe { (self.functions.vm_at)(place, &mut vcpus, &mut wanted_ns, &mut llcs) };
            if pid != 0 {
                all.push(Resident { place, pid, vcpus, wanted_ns, llcs, limit: None });
            }
        }
        Ok(all)
    }

    /// What the scheduler has booked as run by the VM of a process, and in how many of its entries.
    pub fn booked(&self, tgid: u32) -> (u64, u32) {
        let mut entries = 0;
        // SAFETY: as in `pass!`.
        let ns = unsafe { (self.functions.booked)(tgid, &mut entries) };
        (ns, entries)
    }

    /// Makes a task: the CPU that does so, the one that it sleeps on, pid, tgid, weight (100 is nice 0), policy,
    /// whether it is real-time, affinity, group.
    #[allow(clippy::too_many_arguments)]
    pub fn new_task(
        &self,
        cpu: u32,
        on: u32,
        pid: u32,
        tgid: u32,
        weight: u32,
        policy: u32,
        higher: bool,
        mask: &CpuMask,
        group: Option<GroupRef>,
    ) -> u32 {
        let group = group.map_or(0, |group| group.0);
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.new_task)(cpu, on, pid, tgid, weight, policy, higher, mask.as_ptr(), group) }
    }

    /// Changes a task's affinity.
    pub fn set_affinity(&self, cpu: u32, task: u32, mask: &CpuMask) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.set_affinity)(cpu, task, mask.as_ptr()) }
    }

    /// Makes a cgroup below another, or the root.
    pub fn new_group(&self, cpu: u32, parent: Option<GroupRef>, weight: u32, id: u64) -> GroupRef {
        // SAFETY: as in `pass!`.
        GroupRef(unsafe { (self.functions.new_group)(cpu, parent.map_or(0, |group| group.0), weight, id) })
    }

    /// Removes a group that no task is in.
    pub fn end_group(&self, cpu: u32, group: GroupRef) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.end_group)(cpu, group.0) }
    }

    /// Changes `cpu.weight`.
    pub fn set_group_weight(&self, cpu: u32, group: GroupRef, weight: u32) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.set_group_weight)(cpu, group.0, weight) }
    }

    /// Changes `cpu.idle`.
    pub fn set_group_idle(&self, cpu: u32, group: GroupRef, idle: bool) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.set_group_idle)(cpu, group.0, idle) }
    }

    /// Changes `cpu.max`; `u64::MAX` µs: none. False if the scheduler does not listen.
    pub fn set_bandwidth(&self, cpu: u32, group: GroupRef, period_us: u64, quota_us: u64) -> bool {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.set_bandwidth)(cpu, group.0, period_us, quota_us) }
    }

    /// Moves a task to another group.
    pub fn move_group(&self, cpu: u32, task: u32, group: GroupRef) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.move_group)(cpu, task, group.0) }
    }

    /// Makes a VM for so many vCPUs.
    pub fn new_vm(&self, vcpus: u32) -> VmRef {
        // SAFETY: as in `pass!`.
        VmRef(unsafe { (self.functions.new_vm)(vcpus) })
    }

    /// Makes a task the next vCPU of a VM.
    pub fn new_vcpu(&self, vm: VmRef, task: u32) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.new_vcpu)(vm.0, task) }
    }

    /// A task that is no vCPU begins or ends an ioctl about a vCPU of a VM.
    pub fn vcpu_ioctl(&self, vm: VmRef, task: u32, inside: bool) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.vcpu_ioctl)(vm.0, task, inside) }
    }

    /// A yield without a target.
    pub fn yield_now(&self, cpu: u32) {
        // SAFETY: as in `pass!`.
        unsafe { (self.functions.plain_yield)(cpu) }
    }

    /// Programs are interrupted for long whenever they call this kfunc.
    pub fn dwell_in(&self, kfunc: &'static CStr) {
        // SAFETY: the name lives for ever.
        unsafe { (self.functions.dwell)(kfunc.as_ptr()) }
    }

    /// A counter of a process's VM; native/glue.c has their names.
    pub fn vm_counter(&self, tgid: u32, name: &CStr) -> u64 {
        // SAFETY: the name is only read while it is called.
        let counter = unsafe { (self.functions.vm_counter)(tgid, name.as_ptr()) };
        assert_ne!(counter, u64::MAX, "the scheduler does not count {name:?}");
        counter
    }

    pass! {
        /// Tells where a CPU is: first CPUs of its core, LLC and node.
        topology(cpu: u32, core: u32, llc: u32, node: u32);
        /// The scheduler's own start; negative if it refuses.
        start() -> i32;
        /// Says which CPU goes on with an interrupted operation.
        set_cpu(cpu: u32);
        /// Looks whom to run.
        schedule(cpu: u32);
        /// The running task sleeps.
        sleep(cpu: u32);
        /// Wakes a task; synchronously, if whoever does so is about to sleep.
        wake(cpu: u32, task: u32, sync: bool);
        /// The periodic tick.
        tick(cpu: u32);
        /// IPIs of the last window whose senders wait for receivers that do not know.
        lost_relations() -> u32;
        /// How often a running task was sent to another CPU.
        spread() -> u64;
        /// What was put off until the runqueue's lock was released.
        deferred(cpu: u32);
        /// Does what a kick has asked for.
        kick(from: u32, cpu: u32, flags: u64);
        /// Moves a task that may no longer run there.
        stopper(cpu: u32, task: u32);
        /// The running vCPU has spun for a window.
        spin(cpu: u32);
        /// The running vCPU asks that a preempted sibling run.
        pv_yield(cpu: u32, task: u32);
        /// A task runs again that had left its CPU while it spun.
        resumed(cpu: u32);
        /// Changes weight (100 is nice 0) and policy.
        set_weight(cpu: u32, task: u32, weight: u32, policy: u32);
        /// `migrate_disable()` or `_enable()`.
        migration(cpu: u32, task: u32, disable: bool);
        /// Was preempted in an RCU read section, or has left it.
        rcu_section(cpu: u32, task: u32, inside: bool);
        /// A sleeping task ends.
        end_task(cpu: u32, task: u32);
        /// The task is about to end.
        set_exiting(task: u32);
        /// What the vCPU does: in ring 0, halted.
        vcpu_mode(task: u32, in_kernel: bool, halted: bool);
        /// An interrupt for a vCPU, of a device or of whoever runs there.
        accept_irq(cpu: u32, task: u32, vector: u32, device: bool);
        /// The running vCPU takes an interrupt: its vector, 0 if none.
        take_irq(task: u32) -> u32;
        /// Whether a vCPU has one to take.
        has_irq(task: u32) -> bool;
        /// The running vCPU ends an interrupt, and KVM is told.
        eoi(cpu: u32, task: u32, vector: u32, told: bool);
        /// Which start of a timer is in force.
        timer_generation(node: usize) -> u32;
        /// A timer has ended.
        timer_fire(cpu: u32, node: usize, generation: u32);
        /// One in so many allocations fails.
        starve(one_in: u32);
        /// So many timers cannot be had for want of memory.
        refuse_timers(n: u32);
        /// Queue that holds a task, `u64::MAX` for none.
        dsq_of(task: u32) -> u64;
        /// Whether a task wants to run, or runs.
        is_runnable(task: u32) -> bool;
        /// Whether a CPU is to look whom to run.
        need_resched(cpu: u32) -> bool;
        /// How often a vCPU of a process's VM was run after a directed yield.
        boosts(tgid: u32, vcpu: u32) -> u64;
        /// Makes the CPUs preferred that `wanted_cpus` names.
        prefer(cpu: u32);
        /// What the scheduler believes of a vCPU: 1 known, 2 in a mask of queued ones, 4 queued, 8 wants to run; from
        /// the 9th and the 21st bit on, how many vCPUs its VM has, and how many of them want to run.
        marks(task: u32) -> u32;
        /// Begins or ends counting costs.
        count(on: bool);
    }
}
