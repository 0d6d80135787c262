// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler as the kernel has it: load, attach, tune, unload.

mod prepare;
mod tables;

use crate::costs::Counting;
use crate::functions;
use crate::kvm::{self, Vendors, Visibility};
use crate::skeleton::{BpfSkel, BpfSkelBuilder, types};
use crate::topology;
use crate::tunables::{Loading, Tunables};
use crate::urgent::urgently;
use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::bpf_object_open_opts;
use libbpf_rs::{Link, OpenObject, ProgramInput, ProgramMut};
use prepare::{Taken, describe_cpus, leave_out, stretch_times};
use scx_utils::compat;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use scx_utils::{UserExitInfo, scx_ops_load, scx_ops_open, uei_exited};
use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

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
    tunables: Tunables,
    /// Factor of all times.
    stretch: f64,
    visible: Visibility,
    /// When it was loaded.
    since: Instant,
    vendors: Vendors,
    /// How often CPUs had come or gone when it was opened.
    hotplugs: u64,
    /// Whether there is what the probes on spins are put on.
    counts_spins: bool,
    /// The kernel has the functions that change a group's `cpu.idle` and `cpu.weight`.
    hears_idle: bool,
    counting: Option<Counting>,
}

impl<'a> Scheduler<'a> {
    /// Loads the scheduler; nothing is scheduled by it yet.
    ///
    /// # Errors
    /// The topology cannot be read or is larger than the scheduler's tables, or the kernel refuses.
    pub fn load(
        mode: Mode,
        loading: &Loading,
        object: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Scheduler<'a>> {
        scx_utils::try_set_rlimit_infinity();
        quiet();
        let open_options = open_options(&loading.libbpf)?;
        let mut skel = scx_ops_open!(BpfSkelBuilder::default(), object, overbook_ops, open_options)?;
        skel.struct_ops.overbook_ops_mut().exit_dump_len = loading.exit_dump_len;
        let hotplugs = skel.struct_ops.overbook_ops().hotplug_seq;
        let rodata = skel.maps.rodata_data.as_mut().context("the scheduler's object has no settings")?;
        // Only now: the kernel refuses a scheduler once CPUs have come or gone since it was opened.
        describe_cpus(rodata, &topology::read()?)?;
        rodata.may_prefer = mode == Mode::Guest;
        stretch_times(rodata, loading.stretch);
        let vendors = Vendors::detect();
        let visible = Visibility::detect();
        rodata.sends_seen = visible.all_sends();
        rodata.ends_seen = visible.ends();
        rodata.posts = visible.posts();
        let counts_spins = visible != Visibility::NoKvm && functions::are_there(&[kvm::ON_SPIN]);
        let hears_idle = functions::are_there(&["sched_group_set_idle", "sched_group_set_shares"]);
        leave_out(&mut skel, visible, counts_spins, hears_idle);
        let skel = scx_ops_load!(skel, overbook_ops, uei)
            .context("the kernel refuses the scheduler; `overbook -vv host` shows why")?;
        log::info!("seen of guests' interrupts: {}", visible.describe());
        Ok(Scheduler {
            skel,
            link: None,
            probes: Vec::new(),
            on_ipis: Vec::new(),
            tunables: Tunables::DEFAULT,
            stretch: loading.stretch,
            visible,
            since: Instant::now(),
            vendors,
            hotplugs,
            counts_spins,
            hears_idle,
            counting: None,
        })
    }

    /// Changes what may change while running.
    ///
    /// # Errors
    /// A probe on IPIs cannot be attached; nothing is changed then.
    pub fn set(&mut self, tunables: &Tunables) -> Result<()> {
        // First, as it may fail.
        if self.link.is_some() {
            self.watch_ipis(tunables.relations)?;
        }
        let stretch = self.stretch;
        let data = self.data()?;
        data.slice_ns = (tunables.slice_us as f64 * 1000.0 * stretch) as u64;
        // Not stretched: it is the kernel's watchdog that must not lose its own patience.
        data.patience_ns = tunables.patience_ms * 1_000_000;
        data.relations = tunables.relations.into();
        self.tunables = *tunables;
        Ok(())
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
        self.skel.maps.data_data.as_deref_mut().context(tables::NO_STATE)
    }

    /// Starts to schedule; `costs`: and to count what each of its programs takes.
    ///
    /// # Errors
    /// The kernel refuses, as another scheduler is loaded, or the probes cannot be attached; nothing is attached then.
    pub fn attach(&mut self, tunables: &Tunables, costs: bool) -> Result<()> {
        let outcome = self.attach_all(tunables, costs);
        if outcome.is_err() {
            self.leave();
        }
        outcome
    }

    fn attach_all(&mut self, tunables: &Tunables, costs: bool) -> Result<()> {
        self.set(tunables)?;
        self.counting = costs.then(Counting::start).transpose()?;
        self.make_timers()?;
        // It fires below, and says what `is_migration_disabled()` must know of kernels before 6.18: whether all programs disable migration.
        let asked = self.skel.progs.scx_lib_init_probe.attach();
        if let Err(why) = &asked {
            log::info!(
                "tasks that may migrate are taken for those that may not, if this kernel is older than 6.18: {why}"
            );
        }
        // Groups are read as they are when it begins.
        if self.hears_idle {
            let progs = &self.skel.progs;
            match progs.group_idle.attach().and_then(|idle| Ok([idle, progs.group_shares.attach()?])) {
                Ok(links) => self.probes.extend(links),
                Err(why) => log::warn!("a cgroup's cpu.idle counts as it is now, and changes do not: {why}"),
            }
        }
        // Not by scx_utils' macro, which attaches the probes for good: the lab detaches them too.
        let link = urgently(|| self.skel.maps.overbook_ops.attach_struct_ops());
        self.link = Some(link.context("the kernel refuses the scheduler")?);
        let progs = &self.skel.progs;
        if Taken::detect() == Taken::Switch {
            self.probes.push(attached(&progs.cpu_taken)?);
        }
        if self.counts_spins {
            // Without them spins that KVM finds no sibling for are not acted on, and VMs that spin and send no IPIs count as
            // calm.
            match progs.spin_begins.attach().and_then(|begins| Ok([begins, progs.spin_ends.attach()?])) {
                Ok(links) => self.probes.extend(links),
                Err(why) => log::warn!("spins are not counted: {why}"),
            }
        }
        self.watch_ipis(tunables.relations)
    }

    /// Makes the timers, for which the kernel may have no memory at once.
    fn make_timers(&mut self) -> Result<()> {
        let mut missing = 0;
        for _ in 0..5 {
            missing = self.skel.progs.overbook_timers.test_run(ProgramInput::default())?.return_value;
            if missing == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        log::warn!("{}", without_timers(missing));
        Ok(())
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
        let state = self.skel.maps.bss_data.as_deref_mut().context(tables::NO_STATE)?;
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
        let state = self.skel.maps.bss_data.as_deref_mut().context(tables::NO_STATE)?;
        state.some_not_preferred = (cpus.len() < all).into();
        Ok(())
    }

    /// Whether CPUs have come or gone since it was loaded. The kernel says so by unloading it, but only if it is attached.
    pub fn is_of_other_cpus(&self) -> bool {
        hotplugs().is_some_and(|now| now != self.hotplugs)
    }

    /// What programs read of kvm is settled when they are loaded; this one was loaded without it, or with other modules of
    /// it.
    pub fn outdated(&self) -> bool {
        (self.visible == Visibility::NoKvm && Visibility::detect() != Visibility::NoKvm)
            || Vendors::detect() != self.vendors
    }
}

/// How often CPUs have come or gone, as sched_ext counts.
fn hotplugs() -> Option<u64> {
    fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq").ok()?.trim().parse().ok()
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

/// Stands in for the kernel's configuration, of which libbpf insists on reading two strings of debug dumps, and whether RCU is
/// preemptible, which is so wherever it matters (see `is_migration_disabled()` of scx).
const CONFIGURATION: &CStr = c"CONFIG_LOCALVERSION=\"\"\nCONFIG_CC_VERSION_TEXT=\"\"\nCONFIG_PREEMPT_RCU=y\n";

/// Options for opening the object; where the kernel's configuration is nowhere, as in a container, a stand-in is among them.
fn open_options(options: &LibbpfOpts) -> Result<Option<bpf_object_open_opts>> {
    if let Some(file) = &options.kconfig {
        // Else scx_utils would drop all options, and say nothing.
        fs::read_to_string(file).with_context(|| format!("--kconfig: cannot read {file}"))?;
        return Ok(options.clone().into_bpf_open_opts());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let there = [format!("/boot/config-{}", release.trim()), "/proc/config.gz".into()];
    let found = there.iter().any(|file| Path::new(file).exists());
    let options = options.clone().into_bpf_open_opts();
    Ok(if found { options } else { Some(without_configuration(options)) })
}

fn without_configuration(options: Option<bpf_object_open_opts>) -> bpf_object_open_opts {
    let sz = size_of::<bpf_object_open_opts>() as libbpf_rs::libbpf_sys::size_t;
    let options = options.unwrap_or_else(|| bpf_object_open_opts { sz, ..Default::default() });
    bpf_object_open_opts { kconfig: CONFIGURATION.as_ptr(), ..options }
}

/// What does not work without timers, by what `overbook_timers` returns.
fn without_timers(missing: u32) -> String {
    let what = match missing {
        1 => "a spin for which KVM finds nobody is not looked at again",
        2 => "cpu.max is not kept",
        _ => "cpu.max is not kept, and a spin for which KVM finds nobody is not looked at again",
    };
    format!("the kernel has no memory for timers (on CPUs without cmpxchg16b it never has): {what}")
}

/// libbpf prints whole verifier logs at failures; they are for `-v` only.
fn quiet() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| log::debug!("{}", text.trim_end()))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_stands_in_where_there_is_none() {
        for given in [None, Some(bpf_object_open_opts { relaxed_maps: true, ..Default::default() })] {
            let options = without_configuration(given);
            assert_eq!(options.relaxed_maps, given.is_some(), "other options stay");
            assert_eq!(options.kconfig, CONFIGURATION.as_ptr());
            assert!(given.is_some() || options.sz > 0, "libbpf takes no options without their size");
        }
    }

    #[test]
    fn only_what_lacks_its_timer_is_said_not_to_work() {
        let said = [1, 2, 3].map(without_timers);
        assert_eq!(said.each_ref().map(|text| text.contains("cpu.max")), [false, true, true]);
        assert_eq!(said.each_ref().map(|text| text.contains("spin")), [true, false, true]);
    }

    #[test]
    fn a_configuration_that_is_not_there_is_named() {
        let options = LibbpfOpts { kconfig: Some("/nonexistent".into()), ..Default::default() };
        let why = open_options(&options).err().unwrap().to_string();
        assert_eq!(why, "--kconfig: cannot read /nonexistent");
    }
}
