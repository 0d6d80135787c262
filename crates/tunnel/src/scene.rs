// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario file to a host that runs it. The format is the lab's (`docs/scenarios.md`), with the tables that
//! are the tunnel's alone (`docs/tunnel.md`).

use crate::check::Bounds;
use crate::world::{Change, Host, Kind, TaskSpec, World, kernel};
use crate::{Pattern, VmSpec};
use anyhow::{Context, Result, bail};
use overbook_lab::Scenario;
use overbook_lab::machine::describe::parse_cpus;
use overbook_lab::scenario::{Cgroups, ChangeSpec, Does, HALT_US, Halts, Placement, Variant, Vm};
use overbook_vmm::{LockKind, Pattern as Load, Storm};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// What is not the file's.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Instead of the file's.
    pub seed: Option<u64>,
    /// Instead of the file's window, s before dilation.
    pub seconds: Option<f64>,
    /// Variables of the scheduler, as they are.
    pub set: Vec<(String, u64)>,
    /// The variant whose arguments the scheduler has; the first that is Overbook's if absent.
    pub variant: Option<String>,
    /// ns that are traced.
    pub traced: Range<u64>,
}

/// A row of tables: tasks or VMs that are alike.
#[derive(Clone, Debug)]
pub struct Alike {
    /// Name in the file.
    pub name: String,
    /// The VMs, by number.
    pub vms: Vec<usize>,
    /// The tasks, by number, vCPUs too.
    pub tasks: Vec<u32>,
}

/// A host that a scenario describes.
pub struct Scene {
    /// The host, at its start.
    pub world: World,
    /// When its window begins, ns.
    pub from: u64,
    /// When its window ends, ns.
    pub until: u64,
    /// Who is on it, in the file's order.
    pub rows: Vec<Alike>,
}

/// Reads a scenario that the tunnel can run.
///
/// # Errors
/// See [`Scenario::read`]; or it needs a kernel.
pub fn read(path: &Path) -> Result<Scenario> {
    let (scenario, text) = Scenario::read(path)?;
    for (table, given) in [("[linux]", scenario.linux.is_some()), ("[guest]", scenario.guest.is_some())] {
        if given {
            let line = text.lines().position(|line| line.trim_start().starts_with(table)).unwrap_or(0) + 1;
            let file = path.display();
            bail!(
                "{file}:{line}: {table} needs a kernel, which the tunnel does not boot: overbook lab run {file}"
            );
        }
    }
    Ok(scenario)
}

/// Variables of the scheduler that may be changed, here also its constant times: the name, and whether it has 64 bits.
pub fn settings() -> impl Iterator<Item = (&'static str, bool)> {
    let source = include_str!("../../scheduler/src/bpf/state.bpf.h");
    source.lines().filter_map(|line| {
        let constant = line.strip_prefix("const ");
        let (kind, rest) = constant.unwrap_or(line).strip_prefix("volatile u")?.split_once(' ')?;
        let name = rest.split([' ', ';', '[']).next()?;
        (constant.is_none() || name.ends_with("_ns")).then_some((name, kind == "64"))
    })
}

fn known(name: &str) -> Result<bool> {
    let found = settings().find(|(own, _)| *own == name).map(|(_, wide)| wide);
    found.with_context(|| {
        let all: Vec<&str> = settings().map(|(name, _)| name).collect();
        format!("the scheduler has no setting {name:?}; there are {}", all.join(", "))
    })
}

fn ns(us: f64) -> u64 {
    (us * 1000.0) as u64
}

/// Arguments of `overbook host` as variables of the scheduler; times are stretched as the lab's are.
fn arguments(list: &[String], dilation: f64) -> Result<Vec<(String, u64)>> {
    let mut set = Vec::new();
    let words = list.iter().flat_map(|word| word.splitn(2, '='));
    let mut words = words.filter(|word| !word.trim_start_matches('-').chars().all(|c| c == 'v')).peekable();
    while let Some(word) = words.next() {
        let option =
            word.strip_prefix("--").with_context(|| format!("{word:?} is no option"))?.replace('-', "_");
        let value = words.next_if(|word| !word.starts_with("--"));
        let number = value.and_then(|value| value.parse::<f64>().ok());
        let setting = match (number, option.strip_suffix("_us"), option.strip_suffix("_ms")) {
            (Some(us), Some(name), _) => Some((format!("{name}_ns"), ns(us * dilation))),
            // The watchdog's patience is not stretched.
            (Some(ms), _, Some(name)) => Some((format!("{name}_ns"), ns(ms * 1000.0))),
            _ => match value {
                None | Some("on") => Some((option.clone(), 1)),
                Some("off") => Some((option.clone(), 0)),
                _ => None,
            },
        };
        match setting.filter(|(name, _)| known(name).is_ok()) {
            Some(setting) => set.push(setting),
            None => bail!(
                "the tunnel does not know `overbook host {word}`: set the scheduler's variable with --set"
            ),
        }
    }
    Ok(set)
}

fn variant<'a>(scenario: &'a Scenario, wanted: Option<&str>) -> Result<Option<&'a Variant>> {
    let Some(wanted) = wanted else {
        return Ok(scenario.variants.iter().find(|variant| variant.overbook.is_some()));
    };
    let found = scenario.variants.iter().find(|variant| variant.name == wanted);
    let found = found.with_context(|| format!("there is no variant {wanted:?}"))?;
    if found.overbook.is_none() {
        bail!("variant {wanted} is EEVDF's, which the tunnel does not model: choose one with `overbook`");
    }
    Ok(Some(found))
}

/// Makes the host that a scenario describes.
///
/// # Errors
/// The tunnel has no such thing, in one sentence.
pub fn build(scenario: &Scenario, options: &Options) -> Result<Scene> {
    let dilation = scenario.host.dilation;
    let tunnel = scenario.tunnel.clone().unwrap_or_default();
    let variant = variant(scenario, options.variant.as_deref())?;
    let mut set = arguments(variant.and_then(|v| v.overbook.as_deref()).unwrap_or_default(), dilation)?;
    set.extend(tunnel.set.clone());
    set.extend(options.set.clone());
    for (name, _) in &set {
        known(name)?;
    }
    let host = host(scenario, options, variant)?;
    let world = World::new(host)?;
    stretch(&world, dilation)?;
    for (name, value) in set {
        world.tune(&name, value, known(&name)?)?;
    }
    let seconds = options.seconds.unwrap_or(scenario.measure.seconds);
    let from = ns(scenario.measure.settle_seconds * dilation * 1e6);
    let until = from + ns(seconds * dilation * 1e6).max(1);
    let mut builder = Builder { scenario, dilation, groups: BTreeMap::new(), births: Vec::new(), world };
    builder.groups()?;
    let rows = builder.everybody()?;
    builder.world.measure_from(from);
    Ok(Scene { world: builder.world, from, until, rows })
}

fn host(scenario: &Scenario, options: &Options, variant: Option<&Variant>) -> Result<Host> {
    let tunnel = scenario.tunnel.clone().unwrap_or_default();
    let base = Host::default();
    let window_us = base.window_ns as f64 / 1000.0;
    let window_ns = match variant.is_none_or(|variant| variant.ple) {
        true => ns(tunnel.window_us.unwrap_or(window_us)).max(100),
        false => 1 << 60,
    };
    let bound = |ms: Option<f64>, default: Option<u64>| match ms {
        Some(0.0) => None,
        Some(ms) => Some(ns(ms * 1000.0)),
        None => default.map(|ns| (ns as f64 * scenario.host.dilation) as u64),
    };
    Ok(Host {
        cpus: scenario.host.cpus,
        llcs: scenario.host.llcs,
        nodes: scenario.host.nodes,
        smt: scenario.host.smt,
        version: tunnel.version().map_or(base.version, |(major, minor)| kernel(major, minor)),
        hz: tunnel.hz.unwrap_or(base.hz),
        seed: options.seed.unwrap_or(scenario.seed),
        interleave: tunnel.interleave.unwrap_or(0),
        window_ns,
        exit_ns: tunnel.exit_us.map_or(base.exit_ns, ns),
        switch_ns: tunnel.switch_us.map_or(base.switch_ns, ns),
        bounds: Bounds {
            wait_ns: bound(tunnel.wait_ms, base.bounds.wait_ns),
            idle_ns: bound(tunnel.idle_ms, base.bounds.idle_ns),
            share: tunnel.share_percent.map(|percent| percent / 100.0),
            booked: base.bounds.booked,
        },
        traced: options.traced.clone(),
        homes_ns: (base.homes_ns as f64 * scenario.host.dilation) as u64,
        ..base
    })
}

/// Stretches the scheduler's times, as `overbook host --stretch` does.
fn stretch(world: &World, dilation: f64) -> Result<()> {
    if dilation == 1.0 {
        return Ok(());
    }
    for (name, _) in settings().filter(|(name, wide)| *wide && name.ends_with("_ns")) {
        let least = if name == "spin_gap_ns" && dilation > 1.0 { 250_000 } else { 0 };
        if name != "patience_ns" {
            let stretched = (world.model.get::<u64>(name, 0)? as f64 * dilation) as u64;
            world.model.set::<u64>(name, 0, stretched.max(least))?;
        }
    }
    Ok(())
}

enum Born {
    Task(TaskSpec),
    Vm(Box<VmSpec>, Option<Vec<u32>>),
}

struct Birth {
    at: u64,
    what: Born,
    /// When it ends.
    end: Option<u64>,
    /// Row of the table.
    row: usize,
    /// Name, for changes.
    name: String,
}

struct Builder<'a> {
    scenario: &'a Scenario,
    dilation: f64,
    groups: BTreeMap<String, usize>,
    births: Vec<Birth>,
    world: World,
}

impl Builder<'_> {
    /// ns of a time in the file, stretched.
    fn ms(&self, ms: f64) -> u64 {
        ns(ms * 1000.0 * self.dilation)
    }

    fn group_of(&self, name: Option<&String>) -> Option<usize> {
        name.and_then(|name| self.groups.get(name)).copied()
    }

    fn groups(&mut self) -> Result<()> {
        for spec in &self.scenario.groups {
            let parent = self.group_of(spec.parent.as_ref()).unwrap_or(0);
            let group = self.world.group(parent, spec.weight);
            self.groups.insert(spec.name.clone(), group);
            if let Some(max) = spec.max {
                self.world.at(0, bandwidth(group, max));
            }
        }
        Ok(())
    }

    /// Plans all tasks and VMs, and what is changed about them.
    fn everybody(&mut self) -> Result<Vec<Alike>> {
        let mut rows = Vec::new();
        let slice = match self.scenario.layout.cgroups {
            Cgroups::Flat => None,
            _ => Some(self.world.group(0, 100)),
        };
        let mut nth = 0;
        for entry in &self.scenario.vms {
            // Few are shown one by one.
            let apart = entry.count <= 8;
            let first = rows.len();
            for (name, vm) in self.scenario.each_vm().skip(nth as usize).take(entry.count as usize) {
                if apart || rows.len() == first {
                    let stem = vm.name.clone().unwrap_or_else(|| "vm".into());
                    let name = if apart { name.clone() } else { stem };
                    rows.push(Alike { name, vms: Vec::new(), tasks: Vec::new() });
                }
                let (spec, pins) = self.vm(nth, &name, vm, slice)?;
                let what = Born::Vm(Box::new(spec), pins);
                self.births.push(Birth {
                    at: self.ms(vm.begin_ms),
                    what,
                    end: None,
                    row: rows.len() - 1,
                    name,
                });
                nth += 1;
            }
        }
        for entry in &self.scenario.tasks {
            let apart = entry.count <= 4;
            for (i, name) in overbook_lab::scenario::names(&entry.name, entry.count).enumerate() {
                if apart || i == 0 {
                    let name = if apart { &name } else { &entry.name };
                    rows.push(Alike { name: name.clone(), vms: Vec::new(), tasks: Vec::new() });
                }
                let what = Born::Task(self.task(i, &name, entry)?);
                let end = entry.end_ms.map(|ms| self.ms(ms));
                self.births.push(Birth { at: self.ms(entry.begin_ms), what, end, row: rows.len() - 1, name });
            }
        }
        let tasks = self.deliver(&mut rows);
        for change in &self.scenario.changes {
            self.change(change, &tasks)?;
        }
        Ok(rows)
    }

    /// Has all be born in their order, which gives them their numbers. Returns everybody's tasks by name.
    fn deliver(&mut self, rows: &mut [Alike]) -> BTreeMap<String, Vec<u32>> {
        let mut births = std::mem::take(&mut self.births);
        births.sort_by_key(|birth| birth.at);
        let mut tasks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let (mut next, mut next_vm) = (0, 0);
        for birth in births {
            let Birth { at, what, end, row, name } = birth;
            let n = match &what {
                Born::Task(_) => 1,
                Born::Vm(vm, _) => vm.vcpus,
            };
            let ids: Vec<u32> = (next..next + n).collect();
            next += n;
            rows[row].tasks.extend(&ids);
            match what {
                Born::Task(spec) if at == 0 => drop(self.world.task(spec)),
                Born::Task(spec) => self.world.at(at, Change::Begin(Box::new(spec))),
                Born::Vm(spec, pins) => {
                    rows[row].vms.push(next_vm);
                    next_vm += 1;
                    match at {
                        0 => drop(self.world.vm(*spec)),
                        _ => self.world.at(at, Change::BeginVm(spec)),
                    }
                    for (id, pin) in ids.iter().zip(pins.iter().flatten()) {
                        self.world.at(at, Change::Affinity(*id, vec![*pin]));
                    }
                }
            }
            if let Some(end) = end {
                ids.iter().for_each(|id| self.world.at(end, Change::End(*id)));
            }
            // `worker` is all of worker1, worker2, …
            let stem = self.scenario.tasks.iter().map(|task| &task.name).find(|stem| {
                name.strip_prefix(stem.as_str()).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
            });
            if let Some(stem) = stem.filter(|stem| **stem != name) {
                tasks.entry(format!("task {stem}")).or_default().extend(&ids);
            }
            let kind = if n == 1 && rows[row].vms.is_empty() { "task" } else { "vm" };
            tasks.insert(format!("{kind} {name}"), ids);
        }
        tasks
    }

    fn vm(
        &mut self,
        nth: u32,
        name: &str,
        vm: &Vm,
        slice: Option<usize>,
    ) -> Result<(VmSpec, Option<Vec<u32>>)> {
        let (load, layout) = (vm.load(), &self.scenario.layout);
        let above = self.group_of(vm.group.as_ref());
        let group = match (layout.cgroups, slice) {
            (Cgroups::Flat, _) | (_, None) => above,
            (cgroups, Some(slice)) => {
                let own = self.world.group(above.unwrap_or(slice), vm.weight.unwrap_or(100));
                // machine-NAME.scope has libvirt/vcpu0, libvirt/vcpu1, …
                Some(if cgroups == Cgroups::PerVm { own } else { self.world.group(own, 100) })
            }
        };
        let places = match &vm.cpus {
            Some(list) => parse_cpus(list)?,
            None => self.scenario.cpus_of(nth, vm),
        };
        let pinned = layout.placement == Placement::Pinned;
        let all = places.len() == self.scenario.host.cpus as usize;
        let spec = VmSpec {
            critical_ns: ns(load.critical_us * self.dilation),
            outside_ns: ns(load.outside_us * self.dilation),
            halt_ns: ns(vm.halt_us.unwrap_or(HALT_US) * self.dilation),
            jitter_percent: load.jitter_percent,
            cpus: (!all).then(|| places.clone()),
            group,
            groups_below: match layout.cgroups {
                Cgroups::Flat | Cgroups::PerVm => 0,
                Cgroups::Nested => 2,
                Cgroups::PerVcpu => vm.vcpus,
            },
            pv_eoi: vm.pv_eoi,
            ..VmSpec::new(name, vm.vcpus, pattern(vm).with_context(|| format!("VM {name}"))?)
        };
        let pins = pinned.then(|| (0..vm.vcpus as usize).map(|i| places[i % places.len()]).collect());
        Ok((spec, pins))
    }

    fn task(&self, i: usize, name: &str, entry: &overbook_lab::scenario::TaskSpec) -> Result<TaskSpec> {
        let (run, sleep) = (ns(entry.run_us * self.dilation), ns(entry.sleep_us * self.dilation));
        let kind = match entry.does {
            Does::Hog => Kind::Hog,
            Does::Sleeper => Kind::Sleeper(run, sleep),
            Does::Periodic => Kind::Periodic(run, sleep),
            Does::RealTime => Kind::RealTime(run, sleep),
        };
        let mut cpus = entry.cpus.as_ref().map(|list| parse_cpus(list)).transpose()?;
        if let Some(cpus) = cpus.as_mut().filter(|_| entry.bound || entry.does == Does::RealTime) {
            *cpus = vec![cpus[i % cpus.len()]];
        }
        Ok(TaskSpec {
            weight: entry.weight,
            policy: if entry.idle { 5 } else { 0 },
            cpus,
            group: self.group_of(entry.group.as_ref()),
            ..TaskSpec::new(name, kind)
        })
    }

    fn change(&mut self, change: &ChangeSpec, tasks: &BTreeMap<String, Vec<u32>>) -> Result<()> {
        let at = self.ms(change.at_ms);
        if let Some(group) = self.group_of(change.group.as_ref()) {
            let what = match (change.weight, change.max) {
                (Some(weight), _) => Change::GroupWeight(group, weight),
                (_, max) => bandwidth(group, max.unwrap_or(0.0)),
            };
            self.world.at(at, what);
            return Ok(());
        }
        let name = match (&change.task, &change.vm) {
            (Some(name), _) => format!("task {name}"),
            (_, vm) => format!("vm {}", vm.as_deref().unwrap_or_default()),
        };
        let to = self.group_of(change.move_to.as_ref());
        for id in tasks.get(&name).with_context(|| format!("there is no {name} to change"))? {
            let what = match (&change.cpus, change.weight, to) {
                (Some(list), ..) => Change::Affinity(*id, parse_cpus(list)?),
                (_, Some(weight), _) => Change::Weight(*id, weight, 0),
                (.., Some(group)) => Change::Group(*id, group),
                _ => Change::End(*id),
            };
            self.world.at(at, what);
        }
        Ok(())
    }
}

/// `cpu.max` over the kernel's own period; 0 CPUs: none.
fn bandwidth(group: usize, cpus: f64) -> Change {
    let quota = if cpus > 0.0 { (cpus * 100_000.0) as u64 } else { u64::MAX };
    Change::Bandwidth(group, 100_000, quota)
}

/// What the tunnel calls a VM's pattern.
fn pattern(vm: &Vm) -> Result<Pattern> {
    let load = vm.load();
    Ok(match (load.pattern, vm.halts) {
        (Load::Compute, Some(Halts::Timer)) => Pattern::Sleeper,
        (Load::Compute, Some(Halts::Message)) => Pattern::Messages,
        (Load::Compute, None) => Pattern::Compute,
        (Load::Lock, _) if load.lock == LockKind::Ticket => Pattern::Ticket,
        (Load::Lock, _) => Pattern::Lock,
        (Load::Ipi, _) => Pattern::Ipi,
        (Load::Shootdown, _) if load.targets == 0 || load.targets == vm.vcpus - 1 => Pattern::Shootdown,
        (Load::Shootdown, _) => bail!("a shootdown of the tunnel asks all siblings: leave `targets` out"),
        (Load::Barrier, _) => Pattern::Barrier,
        (Load::KernelReceiver, _) => Pattern::KernelReceiver,
        (Load::UserReceiver, _) => Pattern::UserReceiver,
        (Load::HaltedReceiver, _) => Pattern::HaltedReceiver,
        (Load::Hostile, _) => match load.storms[..] {
            [Storm::Pause] => Pattern::Pause,
            [Storm::Ipi] => Pattern::Storm,
            _ => bail!("a hostile guest of the tunnel has one storm: storms = [\"pause\"] or [\"ipi\"]"),
        },
    })
}

impl Scene {
    /// CPUs of the host.
    pub fn cpus(&self) -> u32 {
        self.world.host.cpus
    }

    /// Runs to the end of the window.
    pub fn run(&mut self) -> crate::Report {
        self.world.run(self.until);
        self.world.report()
    }
}
