// SPDX-License-Identifier: GPL-2.0-only
//! Scenario files: what is measured, on what host, with which VMs and which variants.
//!
//! The format is documented in `docs/scenarios.md`. Every mistake is reported with its line.

mod check;
mod extends;
mod guest;
mod linux;
mod loads;
mod source;
mod tunnel;

use check::{Key, offset_of};
pub use guest::{GuestLoad, GuestSpec, HostShare};
pub use linux::{LinuxSpec, Paravirtual, Vcpus};
use overbook_report::schema::{USUAL_REPETITIONS, VariantInfo};
use overbook_vmm::{Load, LockKind, Pattern, Storm};
use serde::{Deserialize, Serialize};
pub use source::{Setting, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
pub use tunnel::{ChangeSpec, Does, GroupSpec, HALT_US, Halts, TaskSpec, TunnelSpec, names};

/// A scenario that cannot be run.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read scenario {path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// The file is not a scenario.
    #[error("{path}:{line}: {what}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong and what would be right.
        what: String,
    },
}

/// A scenario, complete and consistent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line for headings.
    pub title: String,
    /// Why this scenario exists.
    #[serde(default)]
    pub about: String,
    /// Seed of every random choice, 0 to 2^63 − 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// The machine.
    #[serde(default)]
    pub host: Host,
    /// How long and how often.
    #[serde(default)]
    pub measure: Measure,
    /// Where vCPUs may run and how they are grouped.
    #[serde(default)]
    pub layout: Layout,
    /// The VMs; none if the machine itself is the guest.
    #[serde(rename = "vm", default)]
    pub vms: Vec<Vm>,
    /// The machine itself is a guest, of a host that is a model.
    #[serde(default)]
    pub guest: Option<GuestSpec>,
    /// Linux guests, instead of `vms`.
    #[serde(default)]
    pub linux: Option<LinuxSpec>,
    /// Only the wind tunnel can run it.
    #[serde(default)]
    pub tunnel: Option<TunnelSpec>,
    /// Tasks beside the VMs, in the tunnel.
    #[serde(rename = "task", default)]
    pub tasks: Vec<TaskSpec>,
    /// cgroups, in the tunnel.
    #[serde(rename = "group", default)]
    pub groups: Vec<GroupSpec>,
    /// What is changed while it runs, in the tunnel.
    #[serde(rename = "change", default)]
    pub changes: Vec<ChangeSpec>,
    /// What is compared; the first is the baseline.
    #[serde(rename = "variant", default = "Variant::eevdf_only")]
    pub variants: Vec<Variant>,
}

/// The emulated host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// 1 to 16; 1 to 1024 in the tunnel.
    pub cpus: u32,
    /// Last-level caches (sockets); divides `cpus`.
    pub llcs: u32,
    /// NUMA nodes; divides `llcs`.
    pub nodes: u32,
    /// Threads per core, 1 or 2.
    pub smt: u32,
    /// Memory in MiB, 512 to 16384; [`Host::memory_mb`] has the default.
    pub memory_mb: Option<u32>,
    /// Emulated speed: all CPUs together run 10^9 / 2^shift instructions per second of model time. 0 to 6.
    pub shift: u32,
    /// Length of an emulated CPU's turn, in µs of model time, 1 to 10000; by default
    /// 40 ÷ `cpus`, at least 2.
    pub turn_us: Option<u32>,
    /// Stretches scheduler slices and guest sections together. 0.1 to 100.
    pub dilation: f64,
}

/// How long and how often a variant is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Measured window, in seconds of model time.
    pub seconds: f64,
    /// Time that the VMs run before the window.
    pub settle_seconds: f64,
    /// Runs of every variant, interleaved.
    pub repetitions: u32,
    /// Whether the bound of every VM is measured too.
    pub bound: bool,
}

/// Placement of vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Any vCPU anywhere.
    #[default]
    Free,
    /// vCPU i of every VM on CPU i, modulo the CPUs.
    Pinned,
    /// VM k on CPUs k·pool to (k+1)·pool − 1, modulo the CPUs.
    Pooled,
}

/// cgroups of vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cgroups {
    /// All in the root group.
    #[default]
    Flat,
    /// A group per VM.
    PerVm,
    /// A group per VM, and in it `a` and `b` with every second vCPU each, and one for the rest.
    Nested,
    /// As libvirt does: a group per VM, and in it one per vCPU and one for the rest.
    PerVcpu,
}

/// Where vCPUs may run and how they are grouped.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layout {
    /// Affinity.
    pub placement: Placement,
    /// CPUs per VM of `pooled`.
    pub pool: Option<u32>,
    /// cgroups.
    pub cgroups: Cgroups,
}

/// One VM, or several alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Name in tables; a number is appended where `count` exceeds 1.
    #[serde(default)]
    pub name: Option<String>,
    /// How many of these.
    #[serde(default = "one_u32")]
    pub count: u32,
    /// 1 to 256.
    pub vcpus: u32,
    /// What the guest does.
    pub pattern: Pattern,
    /// See [`Load`], as all until `jitter_percent`.
    pub lock: Option<LockKind>,
    /// Time in the critical section or handler.
    pub critical_us: Option<f64>,
    /// Time between operations.
    pub outside_us: Option<f64>,
    /// Receivers of a shootdown.
    pub targets: Option<u32>,
    /// Storms of a hostile guest.
    pub storms: Option<Vec<Storm>>,
    /// Variation of outside work.
    pub jitter_percent: Option<u32>,
    /// `cpu.weight` of the VM's group, 1 to 10000; needs cgroups other than `flat`.
    pub weight: Option<u32>,
    /// In the tunnel: the `[[group]]` that the VM's own groups are in.
    pub group: Option<String>,
    /// In the tunnel: CPUs that the vCPUs may use, instead of the layout's.
    pub cpus: Option<String>,
    /// vCPUs that compute halt in between; until a message comes only in the tunnel.
    pub halts: Option<Halts>,
    /// Mean time of a halt that a timer ends; [`HALT_US`] if absent.
    pub halt_us: Option<f64>,
    /// In the tunnel: ends of interrupts are written to memory, unseen by KVM.
    #[serde(default)]
    pub pv_eoi: bool,
    /// In the tunnel: when it begins.
    #[serde(default)]
    pub begin_ms: f64,
}

/// One configuration of the host's scheduler. By default it is EEVDF as the kernel has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name in tables.
    pub name: String,
    /// What it changes, in words.
    #[serde(default)]
    pub about: String,
    /// Scheduler features to set (`NEXT_BUDDY`) or clear (`NO_NEXT_BUDDY`) in debugfs.
    #[serde(default)]
    pub features: Vec<String>,
    /// Switches of the kernel series, by name ([`crate::machine::switches`]); the kernel that is booted must have them.
    #[serde(default)]
    pub kernel: BTreeMap<String, u64>,
    /// CPUs that the kernel series prefers, chosen by hand (`0-1`): some of the machine's and not all.
    #[serde(default)]
    pub preferred: Option<String>,
    /// EEVDF's base slice in µs before dilation; the kernel's own if absent.
    #[serde(default)]
    pub base_slice_us: Option<f64>,
    /// Arguments of `overbook host`, which schedules this variant; EEVDF does if absent.
    #[serde(default)]
    pub overbook: Option<Vec<String>>,
    /// A sched_ext scheduler of others that schedules this variant, and its arguments; in them, `@N` is N times the
    /// dilation.
    #[serde(default)]
    pub scheduler: Option<Vec<String>>,
    /// Arguments of `overbook guest`, which schedules this variant of a machine that is a guest, or in Linux guests.
    #[serde(default)]
    pub guest: Option<Vec<String>>,
    /// The kernel series' steal governor packs the Linux guests that take part, with these parameters
    /// ([`crate::machine::switches::GOVERNOR`]); the kernel that is booted must have it.
    #[serde(default)]
    pub governor: Option<BTreeMap<String, u64>>,
    /// So many of the Linux guests take part, the first ones; all if absent.
    #[serde(default)]
    pub cooperate: Option<u32>,
    /// `false` switches pause-loop exits off, and with them directed yield.
    #[serde(default = "yes")]
    pub ple: bool,
}

impl Default for Variant {
    fn default() -> Variant {
        Variant {
            name: String::new(),
            about: String::new(),
            features: Vec::new(),
            kernel: BTreeMap::new(),
            preferred: None,
            base_slice_us: None,
            overbook: None,
            scheduler: None,
            guest: None,
            governor: None,
            cooperate: None,
            ple: true,
        }
    }
}

/// Name of a program in the machine's folder of programs, of a name or a path on the computer that boots it.
pub(crate) fn program(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn one() -> u64 {
    1
}

fn one_u32() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Default for Host {
    fn default() -> Host {
        Host { cpus: 4, llcs: 1, nodes: 1, smt: 1, memory_mb: None, shift: 1, turn_us: None, dilation: 1.0 }
    }
}

impl Host {
    /// The turn in force, in microseconds: a round of all CPUs takes 40 µs by default.
    pub fn turn_us(&self) -> u32 {
        self.turn_us.unwrap_or((40 / self.cpus.max(1)).max(2))
    }

    /// Memory in MiB.
    pub fn memory_mb(&self) -> u32 {
        self.memory_mb.unwrap_or(1024)
    }
}

impl Default for Measure {
    fn default() -> Measure {
        Measure { seconds: 1.0, settle_seconds: 0.2, repetitions: USUAL_REPETITIONS as u32, bound: true }
    }
}

impl Variant {
    fn eevdf_only() -> Vec<Variant> {
        vec![Variant {
            name: "eevdf".into(),
            about: "the kernel's own scheduler, untouched".into(),
            ..Variant::default()
        }]
    }
}

impl Variant {
    /// The program and the arguments of `scheduler`, for a dilation.
    pub fn scheduler(&self, dilation: f64) -> Option<(String, Vec<String>)> {
        let (program, arguments) = self.scheduler.as_ref()?.split_first()?;
        let stretched = |word: &String| match check::number_to_stretch(word) {
            Some(Ok(number)) => ((number as f64 * dilation).round() as u64).to_string(),
            _ => word.clone(),
        };
        Some((program.clone(), arguments.iter().map(stretched).collect()))
    }
}

impl Vm {
    /// One VM of a pattern, with the pattern's defaults.
    pub fn new(pattern: Pattern, vcpus: u32) -> Vm {
        Vm {
            name: None,
            count: 1,
            vcpus,
            pattern,
            lock: None,
            critical_us: None,
            outside_us: None,
            targets: None,
            storms: None,
            jitter_percent: None,
            weight: None,
            group: None,
            cpus: None,
            halts: None,
            halt_us: None,
            pv_eoi: false,
            begin_ms: 0.0,
        }
    }

    /// The guest's load with the pattern's defaults filled in.
    pub fn load(&self) -> Load {
        let base = Load::new(self.pattern);
        Load {
            pattern: self.pattern,
            lock: self.lock.unwrap_or(base.lock),
            critical_us: self.critical_us.unwrap_or(base.critical_us),
            outside_us: self.outside_us.unwrap_or(base.outside_us),
            halt_us: match self.halts {
                Some(Halts::Timer) => self.halt_us.unwrap_or(HALT_US),
                _ => base.halt_us,
            },
            targets: self.targets.unwrap_or(base.targets),
            storms: self.storms.clone().unwrap_or(base.storms),
            jitter_percent: self.jitter_percent.unwrap_or(base.jitter_percent),
        }
    }
}

impl Scenario {
    /// Reads and checks a scenario file; gives also its text, with what it extends.
    ///
    /// # Errors
    /// See [`ScenarioError`].
    pub fn read(path: &Path) -> Result<(Scenario, String), ScenarioError> {
        let text = overbook_report::json::read_text(path)
            .map_err(|why| ScenarioError::Unreadable { path: path.into(), why })?;
        let line = || 1 + text[..offset_of(&text, &[Key::Name(extends::KEY)])].matches('\n').count();
        let whole = extends::whole(&text, path).map_err(|why| ScenarioError::Invalid {
            path: path.into(),
            line: line(),
            what: format!("{why:#}"),
        })?;
        match whole {
            None => Ok((Scenario::parse(&text, path)?, text)),
            Some(whole) => {
                let path = format!("{} with what it extends", path.display());
                Ok((Scenario::parse(&whole, Path::new(&path))?, whole))
            }
        }
    }

    /// Checks the text of a scenario; `path` is for messages only.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] with the line of the first mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Scenario, ScenarioError> {
        let invalid = |offset: usize, what: String| ScenarioError::Invalid {
            path: path.into(),
            line: text[..offset.min(text.len())].matches('\n').count() + 1,
            what,
        };
        let mut scenario: Scenario = toml::from_str(text).map_err(|e| {
            let what = e.message().replace('\n', "; ");
            invalid(e.span().map_or(0, |s| s.start), what)
        })?;
        scenario.fill().map_err(|(keys, what)| invalid(offset_of(text, &keys), what))?;
        scenario.check().map_err(|(keys, what)| invalid(offset_of(text, &keys), what))?;
        Ok(scenario)
    }

    /// Takes from a load of the lab's own, and from the size of Linux guests, what is not said.
    fn fill(&mut self) -> Result<(), check::Mistake> {
        let Some(linux) = &mut self.linux else { return Ok(()) };
        linux.fill()?;
        self.host.memory_mb = self.host.memory_mb.or(Some(linux.host_memory_mb()));
        Ok(())
    }

    /// One line for headings: the title, and the load of Linux guests.
    pub fn heading(&self) -> String {
        let load = self.linux.as_ref().and_then(|linux| loads::all().get(linux.load.as_ref()?));
        match load {
            Some(load) => format!("{}: {}", self.title, load.title),
            None => self.title.clone(),
        }
    }

    /// What is wrong with a key of the `nth` variant in the text of a scenario, for who knows more of its value.
    pub fn wrong_variant(
        text: &str,
        path: &Path,
        nth: usize,
        key: &'static str,
        what: String,
    ) -> ScenarioError {
        let offset = offset_of(text, &[Key::Name("variant"), Key::Nth(nth), Key::Name(key)]);
        let line = text[..offset.min(text.len())].matches('\n').count() + 1;
        ScenarioError::Invalid { path: path.into(), line, what }
    }

    /// A scenario for the very host that this program runs on.
    pub fn native(title: &str, cpus: u32, vms: Vec<Vm>) -> Scenario {
        Scenario {
            title: title.into(),
            about: String::new(),
            seed: 1,
            host: Host { cpus, ..Host::default() },
            measure: Measure::default(),
            layout: Layout::default(),
            vms,
            guest: None,
            linux: None,
            tunnel: None,
            tasks: Vec::new(),
            groups: Vec::new(),
            changes: Vec::new(),
            variants: Variant::eevdf_only(),
        }
    }

    /// Checks a scenario that was not read from a file.
    ///
    /// # Errors
    /// What is wrong, in one sentence.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.check_experiment().map_err(|(_, what)| anyhow::anyhow!(what))
    }

    /// Programs of others' schedulers: names of those that `overbook lab rivals` builds, or paths.
    pub fn rivals(&self) -> impl Iterator<Item = &str> {
        self.variants.iter().filter_map(|variant| Some(variant.scheduler.as_ref()?.first()?.as_str()))
    }

    /// The variants, for a report.
    pub fn variant_infos(&self) -> Vec<VariantInfo> {
        let info = |v: &Variant| VariantInfo { name: v.name.clone(), about: v.about.clone() };
        self.variants.iter().map(info).collect()
    }

    /// How long guests run before they are measured, as the emulated host counts.
    pub fn settle_time(&self) -> Duration {
        Duration::from_secs_f64(self.measure.settle_seconds * self.host.dilation)
    }

    /// How long they are measured, as the emulated host counts.
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(self.measure.seconds * self.host.dilation)
    }

    /// How many instructions' time one of a Linux guest's takes: the dilation, as its work cannot be stretched otherwise.
    /// Micro-guests stretch their own.
    pub fn guest_weight(&self) -> u32 {
        self.linux.as_ref().map_or(1, |_| self.host.dilation as u32)
    }

    /// Every VM, `count` resolved: its name and its description.
    pub fn each_vm(&self) -> impl Iterator<Item = (String, &Vm)> {
        let total: u32 = self.vms.iter().map(|vm| vm.count).sum();
        let copies = self.vms.iter().flat_map(|vm| (0..vm.count).map(move |i| (vm, i)));
        copies.enumerate().map(move |(nth, (vm, i))| {
            let name = match &vm.name {
                Some(name) if vm.count == 1 => name.clone(),
                Some(name) => format!("{name}{}", i + 1),
                None if total == 1 => "vm".into(),
                None => format!("vm{}", nth + 1),
            };
            (name, vm)
        })
    }

    /// vCPUs divided by CPUs that they may use.
    pub fn overcommit(&self) -> f64 {
        if let Some(guest) = &self.guest {
            return guest.overcommit(self.host.cpus);
        }
        if let Some(linux) = &self.linux {
            return f64::from(linux.vcpus().iter().sum::<u32>()) / f64::from(linux.cpus);
        }
        let vcpus: u32 = self.vms.iter().map(|vm| vm.count * vm.vcpus).sum();
        f64::from(vcpus) / f64::from(self.host.cpus)
    }

    /// CPUs that the `nth` VM may use.
    pub fn cpus_of(&self, nth: u32, vm: &Vm) -> Vec<u32> {
        match self.layout.placement {
            Placement::Free => (0..self.host.cpus).collect(),
            Placement::Pinned => (0..vm.vcpus.min(self.host.cpus)).collect(),
            Placement::Pooled => {
                let pool = self.layout.pool.unwrap_or(self.host.cpus);
                (0..pool).map(|i| (nth * pool + i) % self.host.cpus).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "title = \"t\"\n[host]\ncpus = 4\n[[vm]]\ncount = 2\nvcpus = 4\npattern = \"lock\"\n";

    #[test]
    fn defaults_fill_a_short_file() {
        let scenario = Scenario::parse(GOOD, Path::new("x.toml")).unwrap();
        assert_eq!(scenario.variants.len(), 1);
        assert_eq!(scenario.overcommit(), 2.0);
        let names: Vec<String> = scenario.each_vm().map(|(name, _)| name).collect();
        assert_eq!(names, ["vm1", "vm2"]);
        assert_eq!(scenario.vms[0].load(), Load::new(Pattern::Lock));
    }

    #[test]
    fn a_rival_is_told_stretched_times() {
        let scheduler = "[[variant]]\nname = \"r\"\nscheduler = [\"scx_flash\", \"-s\", \"@4096\", \"-k\"]\n";
        let scenario = Scenario::parse(&format!("{GOOD}{scheduler}"), Path::new("x.toml")).unwrap();
        let (program, arguments) = scenario.variants[0].scheduler(16.0).unwrap();
        assert_eq!((program.as_str(), arguments.join(" ").as_str()), ("scx_flash", "-s 65536 -k"));
        for (wrong, why) in [
            ("scheduler = []", "name a program"),
            ("scheduler = [\"scx_flash\", \"@x\"]", "no number to stretch"),
            ("scheduler = [\"scx_flash\"]\noverbook = []", "one scheduler"),
            ("scheduler = [\"/new/overbook\"]", "a program overbook of its own"),
            (
                "scheduler = [\"/new/scx_flash\"]\n[[variant]]\nname = \"s\"\nscheduler = [\"scx_flash\"]",
                "scx_flash and /new/scx_flash have one name",
            ),
        ] {
            let text = format!("{GOOD}[[variant]]\nname = \"r\"\n{wrong}\n");
            let said = Scenario::parse(&text, Path::new("x.toml")).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("x.toml:10"), "{said}");
        }
    }

    #[test]
    fn pools_wrap_around_the_host() {
        let text = GOOD.replace("count = 2", "count = 3") + "[layout]\nplacement = \"pooled\"\npool = 2\n";
        let scenario = Scenario::parse(&text, Path::new("x.toml")).unwrap();
        let pools: Vec<_> = (0..3).map(|k| scenario.cpus_of(k, &scenario.vms[0])).collect();
        assert_eq!(pools, [vec![0, 1], vec![2, 3], vec![0, 1]]);
    }
}
