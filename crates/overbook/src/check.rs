// SPDX-License-Identifier: GPL-2.0-only
//! `overbook check`: this machine as a host and as a guest, feature by feature.

mod conditions;

use anyhow::{Result, bail};
use clap::Args;
use overbook_cli::output::Stdout;
use overbook_guest::cpusets::Cpusets;
use overbook_guest::irqbalance::Irqbalance;
use overbook_guest::native;
use overbook_observe::report::NAMELESS;
use overbook_observe::vms;
use overbook_probe::Probe;
use overbook_scheduler::kvm::Visibility;
use overbook_scheduler::times::{STAT, Times, tick_ns};
use overbook_scheduler::{cores, preflight};
use overbook_vmm::kvm::Kvm;
use overbook_vms::names;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What a line says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    /// Good to know.
    Note,
    /// A fault of the kernel: a note, unless faults count.
    Fault,
    /// The host's scheduler, the guest's, or either cannot be loaded, or does not see what it goes by.
    No,
}

struct Line {
    what: &'static str,
    state: State,
    text: String,
}

fn line(what: &'static str, state: State, text: impl Into<String>) -> Line {
    Line { what, state, text: text.into() }
}

fn need(what: &'static str, holds: bool, good: impl Into<String>, todo: &str) -> Line {
    if holds { line(what, State::Ok, good) } else { line(what, State::No, todo) }
}

#[derive(Args)]
pub struct Check {
    /// Fail where the kernel has a known fault as well: before a scheduler is loaded on many hosts
    #[arg(long)]
    strict: bool,
}

impl Check {
    /// Prints all lines.
    ///
    /// # Errors
    /// Something that `overbook host` needs is missing; or, strictly, the kernel has a fault.
    pub fn run(&self) -> Result<()> {
        let general = general();
        print("this machine", &general)?;
        print("as a KVM host (`overbook host`, `top`, `report`)", &host())?;
        print("as a guest (`overbook guest`)", &guest())?;
        print("for measurements (`overbook lab`, `bench`)", &lab())?;
        verdict(&general, self.strict)
    }
}

/// Why no scheduler had better be loaded, by the lines of the first section.
fn verdict(lines: &[Line], strict: bool) -> Result<()> {
    let many = |state| lines.iter().filter(|line| line.state == state).count();
    match (many(State::No), many(State::Fault)) {
        (0, 0) => Ok(()),
        (0, _) if !strict => Ok(()),
        (0, _) => bail!("this kernel has known faults: see the lines `kernel fault`"),
        (failed, _) => bail!("{}", lacking(failed)),
    }
}

/// How many needs are not met, and where to look.
fn lacking(many: usize) -> String {
    let (thing, are) = if many == 1 { ("thing", "is") } else { ("things", "are") };
    format!("{many} {thing} that `overbook host` needs {are} missing: see the lines with `no`")
}

fn print(title: &str, lines: &[Line]) -> Result<()> {
    writeln!(Stdout, "{title}")?;
    for line in lines {
        let mark = match line.state {
            State::Ok => "ok  ",
            State::Note | State::Fault => "note",
            State::No => "no  ",
        };
        writeln!(Stdout, "  {mark}  {:<20} {}", line.what, line.text)?;
    }
    Ok(())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

fn general() -> Vec<Line> {
    let release = read("/proc/sys/kernel/osrelease");
    let loaded = preflight::loaded();
    let has_sched_ext = Path::new("/sys/kernel/sched_ext").exists();
    let mut lines = vec![line("kernel", State::Note, release.as_str())];
    lines.extend(conditions::known_faults(&release, has_sched_ext));
    lines.extend([
        need("root", preflight::is_root(), "", "schedulers and probes need root: run this with sudo"),
        need(
            "sched_ext",
            has_sched_ext,
            "",
            "the kernel has no CONFIG_SCHED_CLASS_EXT: Debian's have it from 6.16 on (backports)",
        ),
        need(
            "BTF",
            Path::new("/sys/kernel/btf/vmlinux").exists(),
            "",
            "the kernel has no CONFIG_DEBUG_INFO_BTF, which BPF schedulers need",
        ),
        match preflight::isolation() {
            None => line("isolcpus", State::Ok, "no CPU was isolated at boot"),
            Some(why) => line("isolcpus", State::No, why),
        },
        match loaded {
            None => line("scheduler", State::Ok, "EEVDF: nobody else holds sched_ext"),
            Some(name) if name.starts_with("overbook") => line(
                "scheduler",
                State::Note,
                format!("{name} runs already; `--replace` takes over from one of the same kind"),
            ),
            Some(name) => line("scheduler", State::No, format!("{name} holds sched_ext: stop it first")),
        },
        conditions::quotas(&preflight::limited(), preflight::keeps_limits()),
    ]);
    let tagged: Option<Vec<String>> = cores::processes_with_cookie()
        .map(|pids| pids.into_iter().map(|pid| names::of(pid).to_string()).collect());
    lines.push(conditions::core_scheduling(tagged.as_deref()));
    if has_sched_ext {
        lines.push(conditions::deadline_server(overbook_scheduler::has_deadline_server()));
    }
    lines
}

fn host() -> Vec<Line> {
    if !Path::new("/dev/kvm").exists() {
        let text = "no /dev/kvm: load kvm_amd or kvm_intel, and switch virtualization on in the firmware";
        return vec![line("KVM", State::No, text)];
    }
    let kvm = Kvm::detect();
    let named = |name: &str| kvm.parameter(name).map(|value| format!("{name} {value}"));
    let ple = named("ple_gap").or_else(|| named("pause_filter_count")).unwrap_or_default();
    let count = ple.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
    let known = ["kvm_amd", "kvm_intel"].contains(&kvm.module.as_str());
    let text = if known { kvm.to_string() } else { format!("{kvm}: of a kind that nobody has tried") };
    let visible = Visibility::detect();
    let vms = vms::find();
    let vcpus: usize = vms.values().map(|threads| threads.len()).sum();
    let cpus = overbook_observe::snapshot::online_cpus() as usize;
    let groups =
        vms.keys().map(|pid| read(&format!("/proc/{pid}/cgroup"))).collect::<std::collections::BTreeSet<_>>();
    let libvirt =
        ["/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"].iter().any(|s| Path::new(s).exists());
    let nameless = match vms.values().filter(|vcpus| vcpus.is_empty()).count() {
        0 => String::new(),
        many => format!("; {many} without: {NAMELESS}"),
    };
    let mut lines = vec![
        line("KVM", if known { State::Ok } else { State::Note }, text),
        match count {
            Some(0) => {
                line("pause-loop exits", State::No, format!("{ple}: switched off, so spins are not seen"))
            }
            Some(_) => line("pause-loop exits", State::Ok, ple),
            None => line("pause-loop exits", State::Note, "not told: spins are seen if KVM reports them"),
        },
    ];
    // Tried, and detached at once: a kernel may have everything that they need and refuse them all the same.
    let refused = preflight::is_root().then(|| Probe::attach().err().map(|why| format!("{why:#}")));
    lines.extend(sight(refused, visible));
    lines.extend([
        line("VMs", State::Note, format!("{} with {vcpus} vCPUs on {cpus} CPUs{nameless}", vms.len())),
        if vms.len() > 1 && groups.len() == 1 {
            line("cgroups", State::Note, "all VMs are in one group: who has more vCPUs gets more")
        } else {
            line("cgroups", State::Ok, format!("{} groups", groups.len()))
        },
        line(
            "libvirt",
            State::Note,
            if libvirt { "runs" } else { "does not run; names come from QEMU and its cgroup" },
        ),
    ]);
    lines
}

/// What is seen of VMs: `refused` says why the kernel refuses probes, if it does and if they were tried.
fn sight(refused: Option<Option<String>>, visible: Visibility) -> [Line; 2] {
    let seen = format!("seen: {}", visible.describe());
    let none = visible == Visibility::NoKvm;
    match refused {
        Some(None) => [
            line("probes", State::Ok, "the kernel takes them: exits, spins and yields are seen"),
            line("interrupts", if none { State::No } else { State::Ok }, seen),
        ],
        Some(Some(why)) => [
            line("probes", State::No, why),
            line("interrupts", State::No, if none { seen } else { "not seen, as probes are refused".into() }),
        ],
        None => [
            line("probes", State::Note, "not tried: they need root"),
            line("interrupts", if none { State::No } else { State::Note }, format!("if probes work, {seen}")),
        ],
    }
}

fn guest() -> Vec<Line> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return vec![line("hypervisor", State::Note, "none: this is no guest, and nobody steals from it")];
    }
    let times =
        Times::of_machine(&fs::read_to_string(STAT).unwrap_or_default(), tick_ns()).unwrap_or_default();
    let (steal, all) = (times.steal_ns, (times.busy_ns() + times.idle_ns).max(1));
    let irqs = match Irqbalance::find() {
        Some(found) => line("irqbalance", State::Ok, format!("listens at {}", found.socket)),
        None => line("irqbalance", State::Note, "does not run: --steer-irqs moves interrupts instead"),
    };
    vec![
        line("hypervisor", State::Ok, "this is a guest"),
        if steal > 0 {
            line("steal time", State::Ok, format!("{:.2} % since boot", steal as f64 * 100.0 / all as f64))
        } else {
            line("steal time", State::Note, "none since boot: the host is idle, or does not report it")
        },
        match Cpusets::of_this_machine() {
            Ok(_) => line("cpusets", State::Ok, "keep tasks on preferred CPUs, whatever the kernel"),
            Err(why) => line("cpusets", State::Note, why.to_string()),
        },
        irqs,
        if native::is_at_work(Path::new("/sys")) {
            line(
                "steal governor",
                State::No,
                "the kernel packs this guest itself: modprobe -r steal_governor, or leave it to it",
            )
        } else {
            line("steal governor", State::Ok, "the kernel's own does not pack this guest")
        },
    ]
}

fn lab() -> Vec<Line> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let tool = |what: &'static str, program: &str, todo: &str| match there(program) {
        true => line(what, State::Ok, program),
        false => line(what, State::Note, todo),
    };
    vec![
        tool("QEMU", "qemu-system-x86_64", "not installed: the lab needs package qemu-system-x86"),
        line(
            "/dev/kvm",
            if Path::new("/dev/kvm").exists() { State::Ok } else { State::Note },
            if Path::new("/dev/kvm").exists() {
                "there; the lab tries whether it can nest"
            } else {
                "not there: the lab emulates"
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_kernel_count_where_that_is_asked_for() {
        let of = |release: &str, strict| verdict(&conditions::known_faults(release, true), strict);
        assert!(of("6.18.15+deb13-amd64", false).is_ok());
        assert!(of("6.18.15+deb13-amd64", true).unwrap_err().to_string().contains("known faults"));
        assert!(of("7.2.13", true).is_ok(), "CPUs that go offline are a note");
        let missing = [line("sched_ext", State::No, "")];
        assert!(verdict(&missing, true).unwrap_err().to_string().starts_with("1 thing"));
    }

    #[test]
    fn one_thing_is_missing_and_two_are() {
        assert!(lacking(1).starts_with("1 thing that `overbook host` needs is missing:"), "{}", lacking(1));
        assert!(lacking(2).starts_with("2 things that `overbook host` needs are missing:"), "{}", lacking(2));
    }

    #[test]
    fn refused_probes_are_said_and_interrupts_are_not_claimed() {
        let why = "the kernel does not permit KVM's probes";
        let [probes, interrupts] = sight(Some(Some(why.into())), Visibility::All);
        assert!(probes.state == State::No && probes.text == why);
        assert!(interrupts.state == State::No && interrupts.text.contains("not seen"), "{}", interrupts.text);
        let [probes, interrupts] = sight(Some(None), Visibility::All);
        assert!(probes.state == State::Ok && interrupts.state == State::Ok);
        assert!(sight(None, Visibility::All).iter().all(|line| line.state == State::Note));
        let [_, interrupts] = sight(None, Visibility::NoKvm);
        assert!(interrupts.state == State::No && interrupts.text.contains("there is no kvm"));
    }
}
