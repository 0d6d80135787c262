// SPDX-License-Identifier: GPL-2.0-only
//! Life cycle: load, attach, serve statistics, restart after hotplug, unload.

use crate::costs::{self, Counting, ProgramStats};
use crate::intf;
use crate::kvm::Visibility;
use crate::options::{Options, Relations, YieldPolicy};
use crate::preflight;
use crate::skeleton::{BpfSkel, BpfSkelBuilder, types};
use crate::stats::{HostStats, TierStats, VcpuStats, VmStats};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, ValueEnum};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, OpenObject};
use scx_stats::prelude::*;
use scx_utils::compat;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use scx_utils::{Topology, UserExitInfo, scx_ops_load, scx_ops_open, uei_exited};
use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the loader looks whether the kernel has unloaded the scheduler.
const POLL: Duration = Duration::from_millis(100);

/// The scheduler as it is loaded; dropping it gives all tasks back to EEVDF.
struct Scheduler<'a> {
    skel: BpfSkel<'a>,
    link: Option<Link>,
    /// The probes on KVM.
    probes: Vec<Link>,
    visible: Visibility,
    counting: Option<Counting>,
}

/// `overbook host`, until `stop` is raised or the kernel unloads the scheduler.
///
/// # Errors
/// The host does not qualify (see [`preflight::check`]), the kernel refuses the scheduler, or it was unloaded for
/// an error; one sentence each.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    if options.help_stats {
        let data = stats_server_data();
        return data.describe_meta(&mut std::io::stdout(), None);
    }
    if let Some(seconds) = options.monitor {
        return monitor(seconds, stop);
    }
    if let Some(policy) = options.switch {
        return switch(policy);
    }
    preflight::check()?;
    options.check()?;
    if options.hold {
        return hold(options);
    }
    let mut previous = HostStats::default();
    loop {
        // Every load needs an object of its own.
        let mut object = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(options, &mut object)?;
        scheduler.attach(options)?;
        let exit = scheduler.serve(options, stop, &mut previous)?;
        if scheduler.outdated() {
            log::info!("kvm was loaded: loading again");
            continue;
        }
        if !exit.should_restart() {
            if options.json {
                println!("{}", serde_json::to_string(&previous)?);
            }
            return exit.report();
        }
        log::info!("CPUs came or went: loading again");
    }
}

impl<'a> Scheduler<'a> {
    fn load(options: &Options, object: &'a mut MaybeUninit<OpenObject>) -> Result<Scheduler<'a>> {
        scx_utils::try_set_rlimit_infinity();
        quiet();
        let topology = Topology::new().context("cannot read the CPUs' topology from sysfs")?;
        let open_options = with_kconfig(options.libbpf.clone()).into_bpf_open_opts();
        let mut skel = scx_ops_open!(BpfSkelBuilder::default(), object, overbook_ops, open_options)?;
        skel.struct_ops.overbook_ops_mut().exit_dump_len = options.exit_dump_len;
        let rodata = skel.maps.rodata_data.as_mut().context("the scheduler's object has no settings")?;
        rodata.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
        rodata.nr_llcs = topology.all_llcs.len().max(1) as u32;
        for (cpu, place) in &topology.all_cpus {
            let nth = topology.all_llcs.keys().position(|llc| *llc == place.llc_id).unwrap_or(0);
            let slot = rodata.cpu_llc.get_mut(*cpu).with_context(|| {
                format!("CPU {cpu} is beyond the {} that this scheduler knows", intf::OVB_MAX_CPUS)
            })?;
            *slot = nth as u32;
            if let Some(cpus) = rodata.llc_cpus.get_mut(nth) {
                *cpus += 1;
            }
        }
        if rodata.nr_llcs > intf::OVB_MAX_LLCS {
            bail!(
                "{} LLCs are more than the {} that this scheduler knows",
                rodata.nr_llcs,
                intf::OVB_MAX_LLCS
            );
        }
        let late = taken_is_seen_at_switches();
        skel.progs.cpu_taken.set_autoload(late);
        skel.progs.overbook_cpu_release.set_autoload(!late);
        if !late {
            let program = skel.progs.overbook_cpu_release.as_libbpf_object().as_ptr();
            skel.struct_ops.overbook_ops_mut().cpu_release = program;
        }
        let visible = Visibility::detect();
        // Programs on a module's functions can be loaded only where the module is.
        let kvm = visible != Visibility::NoKvm;
        skel.progs.spin_begins.set_autoload(kvm);
        skel.progs.spin_ends.set_autoload(kvm);
        skel.progs.irq_accepted.set_autoload(visible.sends());
        skel.progs.irq_ended.set_autoload(visible.sends());
        skel.progs.ipi_incomplete.set_autoload(visible == Visibility::NotRunning);
        let skel = scx_ops_load!(skel, overbook_ops, uei)
            .context("the kernel refuses the scheduler; `overbook -vv host` shows why")?;
        log::info!("seen of guests' interrupts: {}", visible.describe());
        Ok(Scheduler { skel, link: None, probes: Vec::new(), visible, counting: None })
    }

    /// Sets everything that may change while running.
    fn tune(&mut self, options: &Options) -> Result<()> {
        let ns = |us: u64| (us as f64 * 1000.0 * options.stretch) as u64;
        let data = self.data()?;
        data.slice_ns = ns(options.slice_us);
        data.least_grant_ns = ns(options.least_grant_us);
        data.stay_ns = ns(options.stay_us);
        data.stale_ns = ns(options.stale_us);
        data.preempt_margin_ns = ns(options.preempt_margin_us);
        data.idle_patience_ns = ns(1_000_000);
        data.progress_ns = ns(options.progress_us);
        // An exit takes an emulated CPU longer, however time is stretched.
        let least = if options.stretch > 1.0 { 250_000 } else { 0 };
        data.spin_gap_ns = ns(20).max(least);
        data.cross_llc_ns = ns(options.cross_llc_us);
        data.window_ns = ns(options.window_us);
        data.gang_choice = options.gang.number();
        data.gang_period_ns = ns(options.gang_period_us);
        data.relations_mode = options.relations.number();
        data.tiers = options.tiers.iter().fold(0, |bits, tier| bits | tier.bit());
        // Zero at first, and so in the other section.
        let zeroes = self.skel.maps.bss_data.as_deref_mut().context("the scheduler's object has no state")?;
        zeroes.adaptive_window = options.adaptive_window.into();
        self.switch(options.yield_policy)
    }

    fn data(&mut self) -> Result<&mut types::data> {
        self.skel.maps.data_data.as_deref_mut().context("the scheduler's object has no state")
    }

    /// Starts to schedule.
    fn attach(&mut self, options: &Options) -> Result<()> {
        self.tune(options)?;
        self.counting = options.costs.then(Counting::start).transpose()?;
        // Not by scx_utils' macro, which attaches the probes for good: the lab detaches them too.
        let link =
            self.skel.maps.overbook_ops.attach_struct_ops().context("the kernel refuses the scheduler");
        self.link = Some(link?);
        let progs = &self.skel.progs;
        let mut wanted = Vec::new();
        wanted.extend(taken_is_seen_at_switches().then_some(&progs.cpu_taken));
        if self.visible != Visibility::NoKvm {
            wanted.push(&progs.spin_begins);
            wanted.extend(options.spin_probe.then_some(&progs.spin_ends));
        }
        if self.visible.sends() && options.relations != Relations::None {
            wanted.extend([&progs.irq_accepted, &progs.irq_ended]);
            if self.visible == Visibility::NotRunning {
                wanted.push(&progs.ipi_incomplete);
            }
        }
        for program in wanted {
            let link = program.attach().with_context(|| {
                format!("cannot attach probe {}: is kvm being unloaded?", program.name().to_string_lossy())
            })?;
            self.probes.push(link);
        }
        Ok(())
    }

    /// Gives all tasks back to EEVDF, and says what happened.
    fn detach(&mut self) -> Result<HostStats> {
        let stats = self.stats()?;
        self.probes.clear();
        self.link.take();
        scx_utils::uei_read!(&self.skel, uei).report()?;
        Ok(stats)
    }

    /// Serves until the end, and says why it ended. `total` is left with the last statistics.
    fn serve(
        &mut self,
        options: &Options,
        stop: &Arc<AtomicBool>,
        total: &mut HostStats,
    ) -> Result<UserExitInfo> {
        let server = StatsServer::<Request, HostStats>::new(stats_server_data()).launch();
        // Without a server the scheduler is as good; another user of the socket must not stop it.
        let server = server.inspect_err(|e| log::warn!("no statistics for others: {e:#}")).ok();
        let mut shown = HostStats::default();
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) && !uei_exited!(&self.skel, uei) && !self.outdated() {
            match &server {
                Some(server) => {
                    let (answers, requests) = server.channels();
                    if let Ok(request) = requests.recv_timeout(POLL) {
                        if let Request::Switch(policy) = request {
                            self.switch(policy)?;
                        }
                        answers.send(self.stats()?)?;
                    }
                }
                None => std::thread::sleep(POLL),
            }
            if let Some(seconds) = options.stats
                && due.elapsed() >= Duration::from_secs_f64(seconds)
            {
                due = Instant::now();
                let now = self.stats()?;
                now.since(&shown).print(&mut std::io::stderr())?;
                shown = now;
            }
        }
        *total = self.stats()?;
        self.probes.clear();
        self.link.take();
        Ok(scx_utils::uei_read!(&self.skel, uei))
    }

    /// What programs read of kvm is settled when they are loaded; this one was loaded without it.
    fn outdated(&self) -> bool {
        self.visible == Visibility::NoKvm && Visibility::detect() != Visibility::NoKvm
    }

    fn switch(&mut self, policy: YieldPolicy) -> Result<()> {
        self.data()?.yield_policy = policy.number();
        log::info!("directed yields by {}", policy.name());
        Ok(())
    }

    fn stats(&self) -> Result<HostStats> {
        let data = self.skel.maps.data_data.as_ref().context("the scheduler's object has no state")?;
        let policy = YieldPolicy::value_variants().iter().find(|p| p.number() == data.yield_policy);
        let mut stats = HostStats {
            yield_policy: policy.map_or_else(String::new, |p| p.name()),
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
        if self.counting.is_some() {
            stats.programs = costs::programs();
        }
        Ok(stats)
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
            let pid = entry.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
            let Some(rows) = maps.vm_counts.lookup_percpu(&key, MapFlags::ANY)?.filter(|_| pid != 0) else {
                continue;
            };
            all.insert(pid, VmStats::from_rows(pid, &rows));
            pids.insert(place + 1, pid);
        }
        for place in 0..used.vcpus_used.min(intf::OVB_MAX_ALL_VCPUS) {
            let Some(entry) = maps.vcpus.lookup(&place.to_ne_bytes(), MapFlags::ANY)? else { continue };
            let (vm, id, vcpu) = VcpuStats::from_entry(&entry);
            if let Some(vm) = pids.get(&vm).and_then(|pid| all.get_mut(pid)).filter(|_| vcpu.pid != 0) {
                vm.vcpus.insert(id, vcpu);
            }
        }
        Ok(all)
    }
}

/// Whether the kernel (6.19 and later) takes tasks back from a CPU at any time; see `taken.bpf.h`.
fn taken_is_seen_at_switches() -> bool {
    ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2"]
        .iter()
        .any(|kfunc| compat::ksym_exists(kfunc).unwrap_or(false))
}

fn words_of(row: &[u8]) -> Vec<u64> {
    row.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

/// Arguments as the lab sends them.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Attaches and detaches one loaded scheduler as lines on stdin say; a line of JSON answers each.
fn hold(options: &Options) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut scheduler = Scheduler::load(options, &mut object)?;
    let mut last = scheduler.stats()?;
    println!("{{}}");
    for line in std::io::stdin().lines() {
        let line = line?;
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("attach", arguments) => {
                let arguments: Vec<String> = serde_json::from_str(arguments)?;
                let mut now = Line::try_parse_from(arguments)?.options;
                now.stretch = options.stretch;
                now.check()?;
                // What an earlier end has left behind.
                scheduler.data()?.uei.kind = 0;
                last = scheduler.stats()?;
                scheduler.attach(&now)?;
                "{}".to_string()
            }
            ("detach", _) => serde_json::to_string(&scheduler.detach()?.since(&last))?,
            _ => bail!("{line:?} is neither `attach ARGUMENTS` nor `detach`"),
        };
        println!("{answer}");
    }
    Ok(())
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

/// What a client asks of the scheduler.
#[derive(Clone, Copy)]
enum Request {
    Stats,
    Switch(YieldPolicy),
}

fn stats_server_data() -> StatsServerData<Request, HostStats> {
    let top: Box<dyn StatsReaderSend<Request, HostStats>> = Box::new(|args, (requests, answers)| {
        let request = match args.get("yield_policy") {
            Some(name) => Request::Switch(YieldPolicy::from_str(name, true).map_err(|e| anyhow!(e))?),
            None => Request::Stats,
        };
        requests.send(request)?;
        answers.recv()?.to_json()
    });
    StatsServerData::new()
        .add_meta(HostStats::meta())
        .add_meta(VmStats::meta())
        .add_meta(VcpuStats::meta())
        .add_meta(TierStats::meta())
        .add_meta(ProgramStats::meta())
        .add_stats("top", top)
}

fn monitor(seconds: f64, stop: &Arc<AtomicBool>) -> Result<()> {
    let mut shown = HostStats::default();
    scx_utils::monitor_stats::<HostStats>(
        &[],
        Duration::from_secs_f64(seconds),
        || stop.load(Ordering::Relaxed),
        |now| {
            now.since(&shown).print(&mut std::io::stdout())?;
            shown = now;
            Ok(())
        },
    )
}

fn switch(policy: YieldPolicy) -> Result<()> {
    let mut client = StatsClient::new()
        .connect(None)
        .context("no scheduler of ours is running: start one with `overbook host`")?;
    let answer: HostStats = client.request("stats", vec![("yield_policy".into(), policy.name())])?;
    println!("directed yields by {}", answer.yield_policy);
    Ok(())
}
