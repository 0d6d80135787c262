// SPDX-License-Identifier: GPL-2.0-only
//! What machine this is, without a word that is its own: only files of known content are read, and of free texts only
//! known words are kept.

use overbook_lab::machine::describe::parse_cpus;
use overbook_vmm::kvm::Kvm;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Flags of CPUs that matter to virtualization and to time.
const FLAGS: [&str; 22] = [
    "svm",
    "vmx",
    "hypervisor",
    "ept",
    "npt",
    "vpid",
    "ple",
    "pause_filter",
    "pausefilter",
    "pfthreshold",
    "avic",
    "x2avic",
    "vgif",
    "v_spec_ctrl",
    "apicv",
    "ipi_virt",
    "posted_intr",
    "vapic_reg",
    "vid",
    "x2apic",
    "constant_tsc",
    "nonstop_tsc",
];

/// Parameters of kvm and of the vendor's module.
const PARAMETERS: [&str; 24] = [
    "ple_gap",
    "ple_window",
    "ple_window_grow",
    "ple_window_max",
    "ple_window_shrink",
    "pause_filter_count",
    "pause_filter_count_grow",
    "pause_filter_count_max",
    "pause_filter_count_shrink",
    "pause_filter_thresh",
    "avic",
    "force_avic",
    "enable_apicv",
    "enable_ipiv",
    "enable_device_posted_irqs",
    "nested",
    "npt",
    "ept",
    "vgif",
    "vls",
    "halt_poll_ns",
    "halt_poll_ns_grow",
    "halt_poll_ns_shrink",
    "tdp_mmu",
];

/// Options of the kernel's command line that change scheduling, time or mitigations; their values are kept.
const SWITCHES: [&str; 14] = [
    "mitigations",
    "nosmt",
    "preempt",
    "idle",
    "nohz",
    "highres",
    "clocksource",
    "tsc",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "threadirqs",
    "skew_tick",
];

/// Options of which only it is told that they are given: their values are lists of CPUs.
const GIVEN: [&str; 4] = ["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"];

/// The machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The CPUs.
    pub cpu: Cpu,
    /// How they are put together.
    pub layout: Topology,
    /// The kernel.
    pub kernel: Kernel,
    /// Its KVM.
    pub kvm: KvmState,
    /// Signature of the hypervisor that this machine is a guest of; nothing on bare metal.
    pub hypervisor: Option<String>,
}

/// The CPUs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cpu {
    /// As `/proc/cpuinfo` has it.
    pub vendor: String,
    /// See `vendor`.
    pub name: String,
    /// See `vendor`.
    pub family: String,
    /// See `vendor`.
    pub model: String,
    /// See `vendor`.
    pub stepping: String,
    /// See `vendor`.
    pub microcode: String,
    /// Flags that matter here.
    pub flags: Vec<String>,
    /// Driver and governor of frequencies.
    pub frequency: Vec<String>,
}

/// How CPUs are put together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Topology {
    /// Online CPUs.
    pub cpus: usize,
    /// Cores.
    pub cores: usize,
    /// CPUs of each last-level cache.
    pub llcs: Vec<usize>,
    /// CPUs of each NUMA node.
    pub nodes: Vec<usize>,
}

/// The kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// State of sched_ext; nothing where there is none.
    pub sched_ext: Option<String>,
    /// Whether there is BTF.
    pub btf: bool,
    /// EEVDF's base slice, ns.
    pub base_slice_ns: Option<u64>,
    /// Model of preemption.
    pub preempt: Option<String>,
    /// Clock.
    pub clocksource: Option<String>,
    /// Vulnerabilities and what is done about them.
    pub mitigations: BTreeMap<String, String>,
    /// Options that it was booted with, of those that matter here.
    pub switches: Vec<String>,
}

/// KVM.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KvmState {
    /// Its module.
    pub module: String,
    /// Parameters, of kvm and of its module.
    pub parameters: BTreeMap<String, String>,
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string()).filter(|text| !text.is_empty())
}

/// A text of the kernel's or of a CPU's, with nothing in it that could be a path or an address.
fn plain(text: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || " ()[]-+.,:;_@*%".contains(c);
    text.chars().filter(|c| kept(*c)).take(200).collect::<String>().trim().into()
}

/// One word, as parameters and switches have it.
fn word(text: &str) -> Option<String> {
    let fine = !text.is_empty()
        && text.len() <= 24
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-+_,".contains(c));
    fine.then(|| text.to_string())
}

/// Looks at a machine whose files are below `root`; `signature` is its hypervisor's.
pub fn look(root: &Path, signature: Option<String>) -> Machine {
    let cpuinfo = read(root.join("proc/cpuinfo")).unwrap_or_default();
    Machine {
        cpu: cpu(root, &cpuinfo),
        layout: topology(root),
        kernel: kernel(root),
        kvm: kvm(root),
        hypervisor: signature.map(|text| plain(&text)).filter(|text| !text.is_empty()),
    }
}

fn cpu(root: &Path, cpuinfo: &str) -> Cpu {
    let field = |name: &str| {
        let line = cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| plain(value))
        });
        line.unwrap_or_default()
    };
    let there = format!("{} {}", field_of(cpuinfo, "flags"), field_of(cpuinfo, "vmx flags"));
    let there: Vec<&str> = there.split_whitespace().collect();
    let frequency = ["scaling_driver", "scaling_governor"]
        .into_iter()
        .filter_map(|name| word(&read(root.join("sys/devices/system/cpu/cpu0/cpufreq").join(name))?));
    Cpu {
        vendor: field("vendor_id"),
        name: field("model name"),
        family: field("cpu family"),
        model: field("model"),
        stepping: field("stepping"),
        microcode: field("microcode"),
        flags: FLAGS.into_iter().filter(|flag| there.contains(flag)).map(String::from).collect(),
        frequency: frequency.collect(),
    }
}

fn field_of(cpuinfo: &str, name: &str) -> String {
    let of = |line: &str| {
        line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.into())
    };
    cpuinfo.lines().find_map(of).unwrap_or_default()
}

fn topology(root: &Path) -> Topology {
    let cpus = root.join("sys/devices/system/cpu");
    let online = read(cpus.join("online")).and_then(|list| parse_cpus(&list).ok()).unwrap_or_default();
    // CPUs that share something name the same list.
    let shared = |file: &dyn Fn(u32) -> Option<String>| {
        let mut lists: Vec<String> = online.iter().filter_map(|cpu| file(*cpu)).collect();
        lists.sort();
        lists.dedup();
        lists
    };
    let sizes = |lists: Vec<String>| -> Vec<usize> {
        let online =
            |list: &String| Some(parse_cpus(list).ok()?.iter().filter(|cpu| online.contains(cpu)).count());
        lists.iter().filter_map(online).filter(|size| *size > 0).collect()
    };
    let llc = |cpu: u32| {
        let caches = cpus.join(format!("cpu{cpu}/cache"));
        let last = (0..8).rev().find(|nth| caches.join(format!("index{nth}")).exists())?;
        read(caches.join(format!("index{last}/shared_cpu_list")))
    };
    let nodes = (0..1024).map(|nth| root.join(format!("sys/devices/system/node/node{nth}/cpulist")));
    Topology {
        cpus: online.len(),
        cores: shared(&|cpu| read(cpus.join(format!("cpu{cpu}/topology/thread_siblings_list")))).len(),
        llcs: sizes(shared(&llc)),
        nodes: sizes(nodes.filter_map(read).collect()),
    }
}

fn kernel(root: &Path) -> Kernel {
    let debug = root.join("sys/kernel/debug/sched");
    let dir =
        fs::read_dir(root.join("sys/devices/system/cpu/vulnerabilities")).into_iter().flatten().flatten();
    let mitigations =
        dir.filter_map(|file| Some((word(file.file_name().to_str()?)?, plain(&read(file.path())?))));
    let cmdline = read(root.join("proc/cmdline")).unwrap_or_default();
    let switch = |option: &str| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if GIVEN.contains(&name) {
            return Some(name.to_string());
        }
        let known = SWITCHES.contains(&name);
        known.then(|| word(value).map_or_else(|| name.to_string(), |value| format!("{name}={value}")))
    };
    let clock = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    Kernel {
        release: read(root.join("proc/sys/kernel/osrelease")).map(|text| plain(&text)).unwrap_or_default(),
        sched_ext: read(root.join("sys/kernel/sched_ext/state")).and_then(|text| word(&text)),
        btf: root.join("sys/kernel/btf/vmlinux").exists(),
        base_slice_ns: read(debug.join("base_slice_ns")).and_then(|text| text.parse().ok()),
        preempt: read(debug.join("preempt")).map(|text| plain(&text)),
        clocksource: read(clock).and_then(|text| word(&text)),
        mitigations: mitigations.collect(),
        switches: cmdline.split_whitespace().filter_map(switch).collect(),
    }
}

fn kvm(root: &Path) -> KvmState {
    let cpuinfo = read(root.join("proc/cpuinfo")).unwrap_or_default();
    let kvm = Kvm::of(&root.join("sys"), &cpuinfo);
    let mut parameters = BTreeMap::new();
    for module in ["kvm", &kvm.module] {
        for name in PARAMETERS {
            let file = root.join("sys/module").join(module).join("parameters").join(name);
            if let Some(value) = read(file).and_then(|text| word(&text)) {
                parameters.insert(format!("{module}.{name}"), value);
            }
        }
    }
    KvmState { module: kvm.to_string(), parameters }
}

/// Signature of the hypervisor that this program runs under, as its CPUID tells it.
pub fn signature() -> Option<String> {
    let cpuinfo = read("/proc/cpuinfo")?;
    if !field_of(&cpuinfo, "flags").split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    Some(bytes.into_iter().filter(u8::is_ascii_graphic).map(char::from).collect())
}
