// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler as the kernel has it: load, attach, tune, read, unload.

use crate::changes::Changeable;
use crate::costs::{self, Counting};
use crate::domains::{CoreAt, cores, domains};
use crate::ending;
use crate::entitle::VmUse;
use crate::intf;
use crate::kvm::{self, Visibility};
use crate::options::Options;
use crate::settings::Settings;
use crate::skeleton::{BpfSkel, BpfSkelBuilder, types};
use crate::stats::{ClassStats, HostStats, VcpuStats, VmStats, read};
use crate::urgent::urgently;
use anyhow::{Context, Result};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, OpenObject, ProgramInput, ProgramMut};
use overbook_policy::class::Class;
use overbook_policy::home::Resident;
use scx_utils::compat;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use scx_utils::{Topology, UserExitInfo, scx_ops_load, scx_ops_open, uei_exited};
use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// What the scheduler is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A host's: CPUs are alike.
    Host,
    /// A guest's: some CPUs may be preferred to others ([`Scheduler::prefer`]).
    Guest,
}

/// The scheduler as it is loaded; dropping it gives all tasks back to EEVDF.
pub struct Scheduler<'a> {
    skel: BpfSkel<'a>,
    link: Option<Link>,
    /// The probes on KVM's spins and on CPUs that are taken.
    probes: Vec<Link>,
    /// The probes on IPIs and their ends.
    on_ipis: Vec<Link>,
    /// What is in force.
    settings: Settings,
    /// Factor of all times.
    stretch: f64,
    visible: Visibility,
    /// Whether there is what the probes on spins are put on.
    counts_spins: bool,
    counting: Option<Counting>,
}

impl<'a> Scheduler<'a> {
    /// Loads the scheduler; nothing is scheduled by it yet.
    ///
    /// # Errors
    /// The topology cannot be read or is larger than the scheduler's tables, or the kernel refuses.
    pub fn load(
        mode: Mode,
        options: &Options,
        object: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Scheduler<'a>> {
        scx_utils::try_set_rlimit_infinity();
        quiet();
        let topology = Topology::new().context("cannot read the CPUs' topology from sysfs")?;
        let open_options = with_kconfig(options.libbpf.clone()).into_bpf_open_opts();
        let mut skel = scx_ops_open!(BpfSkelBuilder::default(), object, overbook_ops, open_options)?;
        skel.struct_ops.overbook_ops_mut().exit_dump_len = options.exit_dump_len;
        let rodata = skel.maps.rodata_data.as_mut().context("the scheduler's object has no settings")?;
        rodata.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
        let cores: Vec<CoreAt> = cores(&topology)
            .map(|core| CoreAt {
                llc: core.llc_id,
                node: core.node_id,
                cpus: core.cpus.keys().copied().collect(),
            })
            .collect();
        let domains = domains(&cores, intf::OVB_MAX_LLCS as usize);
        rodata.nr_llcs = domains.len().max(1) as u32;
        for (nth, domain) in domains.iter().enumerate() {
            rodata.llc_cpus[nth] = domain.cpus.len() as u32;
            rodata.llc_node[nth] = domain.node as u32;
            rodata.llc_first[nth] = domain.cpus.first().map_or(0, |cpu| *cpu as u32);
            for cpu in &domain.cpus {
                *rodata.cpu_llc.get_mut(*cpu).with_context(|| {
                    format!("CPU {cpu} is beyond the {} that this scheduler knows", intf::OVB_MAX_CPUS)
                })? = nth as u32;
            }
        }
        rodata.may_prefer = mode == Mode::Guest;
        for constant in [
            &mut rodata.preempt_margin_ns,
            &mut rodata.protect_ns,
            &mut rodata.stale_ns,
            &mut rodata.look_again_ns,
            &mut rodata.window_ns,
            &mut rodata.idle_patience_ns,
            &mut rodata.spin_gap_ns,
        ] {
            *constant = (*constant as f64 * options.stretch) as u64;
        }
        // An exit takes an emulated CPU longer, however time is stretched.
        let least = if options.stretch > 1.0 { 250_000 } else { 0 };
        rodata.spin_gap_ns = rodata.spin_gap_ns.max(least);
        let visible = Visibility::detect();
        rodata.sends_seen = visible.all_sends();
        // These are queued like all others; by itself the kernel would give them 20 ms and put them before others.
        skel.struct_ops.overbook_ops_mut().flags |=
            *compat::SCX_OPS_ENQ_EXITING | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED;
        // What may not stay on a CPU is queued, even if nobody else wants that CPU.
        skel.struct_ops.overbook_ops_mut().flags |= *compat::SCX_OPS_ENQ_LAST;
        if !enforces_limits() {
            skel.progs.overbook_cgroup_set_bandwidth.set_autoload(false);
            skel.struct_ops.overbook_ops_mut().cgroup_set_bandwidth = std::ptr::null_mut();
        }
        let taken = Taken::detect();
        skel.struct_ops.overbook_ops_mut().flags |= *compat::SCX_OPS_ALWAYS_ENQ_IMMED;
        skel.progs.cpu_taken.set_autoload(taken == Taken::Switch);
        skel.progs.overbook_cpu_release.set_autoload(taken == Taken::Callback);
        if taken == Taken::Callback {
            let program = skel.progs.overbook_cpu_release.as_libbpf_object().as_ptr();
            skel.struct_ops.overbook_ops_mut().cpu_release = program;
        }
        // Programs on functions can be loaded only where these are.
        let counts_spins = visible != Visibility::NoKvm && kvm::has_functions(&[kvm::ON_SPIN]);
        skel.progs.spin_begins.set_autoload(counts_spins);
        skel.progs.spin_ends.set_autoload(counts_spins);
        skel.progs.irq_accepted.set_autoload(visible.sends());
        skel.progs.irq_ended.set_autoload(visible.sends());
        skel.progs.irq_ended_unseen.set_autoload(visible.sends());
        skel.progs.ipi_incomplete.set_autoload(visible == Visibility::NotRunning);
        let skel = scx_ops_load!(skel, overbook_ops, uei)
            .context("the kernel refuses the scheduler; `overbook -vv host` shows why")?;
        log::info!("seen of guests' interrupts: {}", visible.describe());
        Ok(Scheduler {
            skel,
            link: None,
            probes: Vec::new(),
            on_ipis: Vec::new(),
            settings: options.settings.clone(),
            stretch: options.stretch,
            visible,
            counts_spins,
            counting: None,
        })
    }

    /// Changes what may change while running.
    ///
    /// # Errors
    /// A probe on IPIs cannot be attached; nothing is changed then.
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        // First, as it may fail.
        if self.link.is_some() {
            self.watch_ipis(settings.relations.is_on())?;
        }
        let stretch = self.stretch;
        let ns = |us: u64| (us as f64 * 1000.0 * stretch) as u64;
        let data = self.data()?;
        data.slice_ns = ns(settings.slice_us);
        // Not stretched: it is the kernel's watchdog that must not lose its own patience.
        data.patience_ns = settings.patience_ms * 1_000_000;
        data.relations = settings.relations.is_on().into();
        self.settings = settings.clone();
        log::info!("{}", settings.in_force());
        Ok(())
    }

    /// What is in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Attaches the probes on IPIs, or takes them off.
    fn watch_ipis(&mut self, on: bool) -> Result<()> {
        if !on || !self.visible.sends() {
            self.on_ipis.clear();
            return Ok(());
        }
        if !self.on_ipis.is_empty() {
            return Ok(());
        }
        let progs = &self.skel.progs;
        let mut wanted = vec![&progs.irq_accepted, &progs.irq_ended, &progs.irq_ended_unseen];
        if self.visible == Visibility::NotRunning {
            wanted.push(&progs.ipi_incomplete);
        }
        self.on_ipis = wanted.into_iter().map(attached).collect::<Result<_>>()?;
        Ok(())
    }

    /// State that starts with values other than zero.
    fn data(&mut self) -> Result<&mut types::data> {
        self.skel.maps.data_data.as_deref_mut().context("the scheduler's object has no state")
    }

    /// Starts to schedule.
    ///
    /// # Errors
    /// The kernel refuses, as another scheduler is loaded, or the probes cannot be attached; nothing is attached then.
    pub fn attach(&mut self, options: &Options) -> Result<()> {
        let outcome = self.attach_all(options);
        if outcome.is_err() {
            self.leave();
        }
        outcome
    }

    fn attach_all(&mut self, options: &Options) -> Result<()> {
        self.set(&options.settings)?;
        self.counting = options.costs.then(Counting::start).transpose()?;
        self.make_timers()?;
        // Not by scx_utils' macro, which attaches the probes for good: the lab detaches them too.
        let link = urgently(|| self.skel.maps.overbook_ops.attach_struct_ops());
        self.link = Some(link.context("the kernel refuses the scheduler")?);
        let progs = &self.skel.progs;
        if Taken::detect() == Taken::Switch {
            self.probes.push(attached(&progs.cpu_taken)?);
        }
        if self.counts_spins {
            // Counts, and no more: without it, VMs are scheduled all the same.
            match progs.spin_begins.attach().and_then(|begins| Ok([begins, progs.spin_ends.attach()?])) {
                Ok(links) => self.probes.extend(links),
                Err(why) => log::warn!("spins are not counted: {why}"),
            }
        }
        self.watch_ipis(options.settings.relations.is_on())
    }

    /// Makes the timers, for which the kernel may have no memory at once. It is as good without, but for limits.
    fn make_timers(&mut self) -> Result<()> {
        for _ in 0..5 {
            if self.skel.progs.overbook_timers.test_run(ProgramInput::default())?.return_value == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        log::warn!(
            "the kernel has no memory for timers (on CPUs without cmpxchg16b it never has): cpu.max is not kept"
        );
        Ok(())
    }

    /// Gives all tasks back to EEVDF, and says what happened.
    ///
    /// # Errors
    /// It had been unloaded before, for an error.
    pub fn detach(&mut self) -> Result<HostStats> {
        let stats = self.stats()?;
        ending::report(&self.leave())?;
        Ok(stats)
    }

    /// Gives all tasks back to EEVDF, and says why it ended.
    pub fn leave(&mut self) -> UserExitInfo {
        self.probes.clear();
        self.on_ipis.clear();
        self.link.take();
        scx_utils::uei_read!(&self.skel, uei)
    }

    /// What is seen of guests' interrupts, in words.
    pub fn sees(&self) -> &'static str {
        self.visible.describe()
    }

    /// Whether the kernel has unloaded it.
    pub fn ended(&self) -> bool {
        uei_exited!(&self.skel, uei)
    }

    /// Forgets what an earlier end has left behind, to attach again.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn forget_end(&mut self) -> Result<()> {
        self.data()?.uei.kind = 0;
        Ok(())
    }

    /// Prefers these CPUs, at least one, to all others ([`Mode::Guest`] only).
    ///
    /// # Errors
    /// The kernel refuses to run the program that does so.
    pub fn prefer(&mut self, cpus: &[usize]) -> Result<()> {
        let state = self.skel.maps.bss_data.as_deref_mut().context("the scheduler's object has no state")?;
        let topology =
            self.skel.maps.rodata_data.as_ref().context("the scheduler's object has no settings")?;
        state.wanted_cpus.fill(0);
        state.llc_preferred.fill(0);
        for cpu in cpus {
            let word =
                state.wanted_cpus.get_mut(cpu / 64).with_context(|| format!("there is no CPU {cpu}"))?;
            *word |= 1 << (cpu % 64);
            state.llc_preferred[topology.cpu_llc[*cpu] as usize] += 1;
        }
        // Tasks are kept off others before these are no longer preferred, not after.
        state.some_not_preferred = 1;
        self.skel.progs.overbook_prefer.test_run(ProgramInput::default())?;
        let all = topology.llc_cpus.iter().sum::<u32>() as usize;
        let state = self.skel.maps.bss_data.as_deref_mut().context("the scheduler's object has no state")?;
        state.some_not_preferred = (cpus.len() < all).into();
        Ok(())
    }

    /// What programs read of kvm is settled when they are loaded; this one was loaded without it.
    pub fn outdated(&self) -> bool {
        self.visible == Visibility::NoKvm && Visibility::detect() != Visibility::NoKvm
    }

    /// What it has counted.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn stats(&self) -> Result<HostStats> {
        let mut stats = HostStats {
            settings: self.settings.in_force(),
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
        let patience_ns = self.settings.patience_ms * 1_000_000;
        for class in Class::ALL {
            // What was longest stands just before the counters.
            let slot = intf::OVB_CLASS_SLOTS as usize - class as usize;
            let longest = words.iter().filter_map(|row| row.get(row.len().checked_sub(counts + slot)?));
            let of_class = ClassStats {
                vms: stats.vms.values().filter(|vm| vm.class == class.name() && vm.alive != 0).count() as u64,
                longest_ns: longest.copied().max().unwrap_or(0),
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
        let state = self.skel.maps.bss_data.as_deref_mut().context("the scheduler's object has no state")?;
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
        let maps = &self.skel.maps;
        let used = maps.bss_data.as_ref().context("the scheduler's object has no state")?;
        let mut all = Vec::new();
        for place in 0..used.vms_used.min(intf::OVB_MAX_VMS) {
            let entry = maps.vms.lookup(&place.to_ne_bytes(), MapFlags::ANY)?;
            let at = entry.map(|entry| read::<intf::ovb_place_of_vm>(&entry)).filter(|at| at.alive != 0);
            all.extend(at.map(|at| (place, at.pid)));
        }
        Ok(all)
    }

    /// Gives VMs, by their places, classes; all that live are told of.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn classify(&mut self, classes: &[(u32, Class)]) -> Result<()> {
        let state = self.skel.maps.bss_data.as_deref_mut().context("the scheduler's object has no state")?;
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
        let maps = &self.skel.maps;
        let used = maps.bss_data.as_ref().context("the scheduler's object has no state")?;
        let mut all: Vec<Option<Resident>> = Vec::new();
        for place in 0..used.vms_used.min(intf::OVB_MAX_VMS) {
            let entry = maps.vms.lookup(&place.to_ne_bytes(), MapFlags::ANY)?;
            let at = entry.map(|entry| read::<intf::ovb_place_of_vm>(&entry)).filter(|at| at.alive != 0);
            all.push(at.map(|at| Resident { place, pid: at.pid, vcpus: at.alive, wanted_ns: 0 }));
        }
        for vcpu in self.vcpus()? {
            let vm = vcpu.vm.checked_sub(1).and_then(|vm| all.get_mut(vm as usize));
            if let Some(Some(vm)) = vm {
                vm.wanted_ns += vcpu.run_ns + vcpu.queued_ns;
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// vCPUs that live.
    fn vcpus(&self) -> Result<Vec<intf::ovb_vcpu_stats>> {
        let maps = &self.skel.maps;
        let used = maps.bss_data.as_ref().context("the scheduler's object has no state")?;
        let mut all = Vec::new();
        for place in 0..used.vcpus_used.min(intf::OVB_MAX_ALL_VCPUS) {
            let entry = maps.vcpus.lookup(&place.to_ne_bytes(), MapFlags::ANY)?;
            all.extend(
                entry.map(|entry| read::<intf::ovb_vcpu_stats>(&entry)).filter(|vcpu| vcpu.alive != 0),
            );
        }
        Ok(all)
    }

    /// VMs that live, by process: what they have used and may use.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn vms_use(&self) -> Result<BTreeMap<u32, VmUse>> {
        let maps = &self.skel.maps;
        let used = maps.bss_data.as_ref().context("the scheduler's object has no state")?;
        let (mut all, mut pids) = (BTreeMap::new(), BTreeMap::new());
        for place in 0..used.vms_used.min(intf::OVB_MAX_VMS) {
            let Some(entry) = maps.vms.lookup(&place.to_ne_bytes(), MapFlags::ANY)? else { continue };
            let vm: types::vm_ctx = read(&entry);
            if vm.at.alive == 0 {
                continue;
            }
            let (weight, limit) = self.due(vm.node)?;
            all.insert(vm.at.pid, VmUse { weight, limit, ..VmUse::default() });
            pids.insert(place + 1, vm.at.pid);
        }
        for vcpu in self.vcpus()? {
            if let Some(vm) = pids.get(&vcpu.vm).and_then(|pid| all.get_mut(pid)) {
                vm.add_vcpu(&vcpu);
            }
        }
        Ok(all)
    }

    /// What the tenant at a place weighs among all, and how many CPUs the limits down to it allow.
    fn due(&self, place: u32) -> Result<(f64, Option<f64>)> {
        let (mut at, mut weight, mut limit) = (place, 1.0, None::<f64>);
        while at != 0 {
            let Some(entry) = self.skel.maps.nodes.lookup(&at.to_ne_bytes(), MapFlags::ANY)? else { break };
            let node: types::node_ctx = read(&entry);
            if at == place {
                weight = 1.0 / ratio_of(node.time.rate).max(f64::MIN_POSITIVE);
            }
            if node.quota.quota != 0 && node.quota.period != 0 {
                let cpus = node.quota.quota as f64 / node.quota.period as f64;
                limit = Some(limit.map_or(cpus, |least| least.min(cpus)));
            }
            at = node.parent;
        }
        Ok((weight, limit))
    }

    /// VMs by process. Those that have ended are told of until their places in the table are needed.
    fn vm_stats(&self) -> Result<BTreeMap<u32, VmStats>> {
        let maps = &self.skel.maps;
        let used = maps.bss_data.as_ref().context("the scheduler's object has no state")?;
        let mut all = BTreeMap::new();
        let mut pids = BTreeMap::new();
        for place in 0..used.vms_used.min(intf::OVB_MAX_VMS) {
            let key = place.to_ne_bytes();
            let Some(entry) = maps.vms.lookup(&key, MapFlags::ANY)? else { continue };
            let intf::ovb_place_of_vm { pid, alive } = read(&entry);
            let Some(rows) = maps.vm_counts.lookup_percpu(&key, MapFlags::ANY)?.filter(|_| pid != 0) else {
                continue;
            };
            let class = used.vm_classes.get(place as usize).filter(|_| used.some_classes != 0);
            let class = Class::numbered(class.copied().unwrap_or(0)).name().into();
            all.insert(
                pid,
                VmStats { class, alive: u64::from(alive != 0), ..VmStats::from_rows(pid, &rows) },
            );
            pids.insert(place + 1, pid);
        }
        for place in 0..used.vcpus_used.min(intf::OVB_MAX_ALL_VCPUS) {
            let Some(entry) = maps.vcpus.lookup(&place.to_ne_bytes(), MapFlags::ANY)? else { continue };
            let (vm, id, vcpu) = VcpuStats::from_entry(&entry);
            if let Some(vm) = pids.get(&vm).and_then(|pid| all.get_mut(pid)).filter(|_| vcpu.pid != 0) {
                vm.add_vcpu(id, vcpu);
            }
        }
        Ok(all)
    }
}

/// A rate of policy/weight.h as a number.
fn ratio_of(rate: u64) -> f64 {
    (rate >> 32) as f64 / f64::powi(2.0, (rate & 63) as i32)
}

/// Attaches a probe.
fn attached(program: &ProgramMut) -> Result<Link> {
    program.attach().with_context(|| {
        format!("cannot attach probe {}: is kvm being unloaded?", program.name().to_string_lossy())
    })
}

/// Whether the kernel (6.17 and later) tells schedulers of groups' `cpu.max`.
pub fn enforces_limits() -> bool {
    compat::struct_has_field("sched_ext_ops", "cgroup_set_bandwidth").unwrap_or(false)
}

/// Whether the kernel (7.0 and later) has a deadline server that keeps real-time tasks from starving sched_ext's.
pub fn has_deadline_server() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
        && compat::struct_has_field("rq", "ext_server").unwrap_or(false)
}

/// How tasks leave a CPU that a higher class takes; see `taken.bpf.h`.
#[derive(PartialEq)]
enum Taken {
    /// `ops.cpu_release()` takes them back, before 6.19.
    Callback,
    /// A probe on switches does.
    Switch,
    /// The kernel does so itself, from 7.1 on: all of a CPU's queue is `SCX_ENQ_IMMED`.
    Kernel,
}

impl Taken {
    fn detect() -> Taken {
        if *compat::SCX_OPS_ALWAYS_ENQ_IMMED != 0 {
            return Taken::Kernel;
        }
        let anywhere = ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2"];
        if anywhere.iter().any(|kfunc| compat::ksym_exists(kfunc).unwrap_or(false)) {
            Taken::Switch
        } else {
            Taken::Callback
        }
    }
}

fn words_of(row: &[u8]) -> Vec<u64> {
    row.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

/// libbpf insists on reading the kernel's configuration: two strings of debug dumps, and whether RCU is preemptible,
/// which is so wherever it matters (see `is_migration_disabled()` of scx). Where it is nowhere, this stands in.
fn with_kconfig(mut options: LibbpfOpts) -> LibbpfOpts {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let there = [format!("/boot/config-{}", release.trim()), "/proc/config.gz".into()];
    if options.kconfig.is_none() && !there.iter().any(|file| Path::new(file).exists()) {
        options.kconfig =
            Some("CONFIG_LOCALVERSION=\"\"\nCONFIG_CC_VERSION_TEXT=\"\"\nCONFIG_PREEMPT_RCU=y\n".into());
    }
    options
}

/// libbpf prints whole verifier logs at failures; they are for `-v` only.
fn quiet() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| log::debug!("{}", text.trim_end()))));
}
