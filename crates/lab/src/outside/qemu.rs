// SPDX-License-Identifier: GPL-2.0-only
//! The machine: QEMU's command line, and a watch over the process.

use crate::scenario::Host;
use anyhow::{Context, Result, bail};
use overbook_kernels::emulator::FIRMWARE;
use overbook_kernels::{Emulator, Kernel};
use procfs::Current;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// Nested hardware virtualization.
    Kvm,
    /// Emulated; time counts instructions, CPUs take turns in one thread. Repeatable.
    Icount,
    /// Emulated; CPUs run in parallel threads against the real clock. Not repeatable, a cross-check.
    Parallel,
    /// Emulated; CPUs take turns in one thread against the real clock. Neither repeatable nor fair, but fast: for soaks.
    Single,
}

impl Accel {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Icount => "tcg-icount",
            Accel::Parallel => "tcg-parallel",
            Accel::Single => "tcg-single",
        }
    }
}

/// A machine to boot.
pub struct Boot<'a> {
    /// Emulator.
    pub emulator: &'a Emulator,
    /// Kernel.
    pub kernel: &'a Kernel,
    /// Initramfs.
    pub initramfs: &'a Path,
    /// Folder for the console and the events.
    pub dir: &'a Path,
    /// Layout and speed.
    pub host: &'a Host,
    /// How many instructions' time one of a guest's takes, 1 to 64. With [`Accel::Icount`] alone.
    pub guest_weight: u32,
    /// What the kernel's command line says besides.
    pub arguments: &'a str,
    /// Acceleration.
    pub accel: Accel,
    /// Seed of the emulator's random devices.
    pub seed: u64,
}

impl Boot<'_> {
    fn command(&self) -> Command {
        let host = self.host;
        let mut qemu = Command::new(&self.emulator.program);
        if self.emulator.patched {
            qemu.args(FIRMWARE.iter().flat_map(|dir| ["-L", dir]));
        }
        qemu.args(["-nodefaults", "-display", "none", "-monitor", "none", "-no-reboot"]);
        match self.accel {
            Accel::Kvm => {
                qemu.args(["-accel", "kvm", "-cpu", "host"]);
            }
            Accel::Icount => {
                qemu.args(["-accel", "tcg,thread=single", "-cpu", "max"]);
                let icount = format!("shift={},sleep=off", host.shift);
                qemu.arg("-icount").arg(match self.emulator.patched {
                    true => {
                        let turn_ns = u64::from(host.turn_us()) * 1000;
                        format!("{icount},turn={turn_ns},guest={}", self.guest_weight)
                    }
                    false => icount,
                });
                // The random devices, and the date: nothing may differ between two runs.
                qemu.arg("-seed").arg(self.seed.to_string());
                qemu.args(["-rtc", "clock=vm,base=2026-01-01T00:00:00"]);
            }
            Accel::Parallel => {
                qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
            }
            Accel::Single => {
                qemu.args(["-accel", "tcg,thread=single", "-cpu", "max"]);
            }
        }
        qemu.arg("-m").arg(format!("{}M", host.memory_mb()));
        self.add_cpus(&mut qemu);
        qemu.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(self.initramfs);
        qemu.arg("-append").arg(self.command_line());
        qemu.arg("-serial").arg(format!("file:{}", self.console().display()));
        qemu.arg("-serial").arg(format!("file:{}", self.events().display()));
        qemu
    }

    /// Layout of CPUs and memory.
    fn add_cpus(&self, qemu: &mut Command) {
        let host = self.host;
        let cores = host.cpus / host.llcs / host.smt;
        qemu.arg("-smp")
            .arg(format!("cpus={},sockets={},cores={cores},threads={}", host.cpus, host.llcs, host.smt));
        if host.nodes > 1 {
            let cpus = host.cpus / host.nodes;
            for node in 0..host.nodes {
                // Together they are what the machine has, to the last MB: QEMU insists.
                let memory =
                    host.memory_mb() / host.nodes + if node == 0 { host.memory_mb() % host.nodes } else { 0 };
                qemu.arg("-object").arg(format!("memory-backend-ram,id=node{node},size={memory}M"));
                let mut numa = format!("node,nodeid={node},memdev=node{node}");
                let first = node * cpus;
                numa += &format!(",cpus={first}-{}", first + cpus - 1);
                qemu.arg("-numa").arg(numa);
            }
        }
    }

    fn command_line(&self) -> String {
        let mut line =
            "console=ttyS0 quiet noautogroup panic=-1 oops=panic nokaslr mitigations=off".to_string();
        if self.accel != Accel::Kvm && !self.emulator.patched {
            // Without the filter KVM would not intercept PAUSE; with the bit it does, and every PAUSE exits.
            line += " setcpuid=pausefilter,pfthreshold";
        }
        // Debian's kernels watch all memory once a little of it is used, by 5 ms of the host's clock whatever the dilation.
        line += " damon_stat.enabled=N ";
        line += self.arguments;
        if self.accel == Accel::Icount {
            // Self-tests and certificates that nobody here uses, and that take an emulated CPU a second.
            line += " cryptomgr.notests initcall_blacklist=load_system_certificate_list,jent_mod_init";
            // The TSC is the instruction count, so there is nothing to watch over.
            line += " tsc=reliable random.trust_cpu=on";
        }
        line
    }

    fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    fn events(&self) -> PathBuf {
        self.dir.join("events.jsonl")
    }

    /// Starts the machine.
    ///
    /// # Errors
    /// QEMU is not installed, or refuses to start.
    pub fn start(&self) -> Result<Running> {
        for file in [self.console(), self.events()] {
            File::create(&file)
                .with_context(|| format!("cannot create {}: is the disk full?", file.display()))?;
        }
        let messages = File::create(self.dir.join("qemu.log"))?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages);
        // SAFETY: prctl is async-signal-safe and takes no pointers.
        unsafe {
            use std::os::unix::process::CommandExt;
            command.pre_exec(|| {
                // Whatever happens to the lab, no machine stays behind; Ctrl-C is the lab's to handle.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::setpgid(0, 0);
                Ok(())
            });
        }
        let program = self.emulator.program.display();
        let child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        Ok(Running {
            child,
            events: File::open(self.events())?,
            pending: Vec::new(),
            console: self.console(),
            messages: self.dir.join("qemu.log"),
        })
    }
}

/// A booted machine. Dropping it kills it.
pub struct Running {
    child: Child,
    events: File,
    pending: Vec<u8>,
    console: PathBuf,
    messages: PathBuf,
}

/// What [`Running::next_line`] saw.
pub enum Next {
    /// A line of events.
    Line(String),
    /// The machine has stopped, and QEMU has ended so; nothing follows.
    Stopped(ExitStatus),
    /// KVM has met something that it cannot execute. The machine stands still for good, and QEMU waits.
    Stuck,
    /// Nothing came for the given time.
    Silent {
        /// What the machine computed meanwhile.
        computed: Duration,
        /// What passed.
        elapsed: Duration,
    },
    /// The user asked to stop.
    Interrupted,
}

/// See [`Running::next_line`].
const STOPPED: u32 = 6;

/// How long a machine that says nothing is left alone between two looks for what it says.
const LOOK: Duration = Duration::from_millis(20);

/// One look in so many is at what QEMU says of it, too.
const LOOKS_AT_QEMU: u64 = 50;

/// What QEMU says when KVM gives a machine up, at the start of a line.
const GIVEN_UP: &str = "KVM internal error";

/// Longest report on that, in lines: it has the registers.
const REPORT: usize = 64;

/// What a process has computed, zero if it has gone.
fn cpu_time(pid: u32) -> Duration {
    let stat = i32::try_from(pid).ok().and_then(|pid| procfs::process::Process::new(pid).ok()?.stat().ok());
    stat.map_or(Duration::ZERO, |stat| {
        Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())
    })
}

impl Running {
    /// Waits for the next event line, at most until the machine has computed for `patience` without a word: on a busy
    /// computer it computes for less than time passes. One that does not compute at all is given up after
    /// `STOPPED` times as long; and one that KVM has given up within a second or two.
    ///
    /// # Errors
    /// The event file cannot be read.
    pub fn next_line(&mut self, patience: Duration, interrupted: &AtomicBool) -> Result<Next> {
        let (started, spent) = (Instant::now(), cpu_time(self.child.id()));
        let mut looks = 0_u64;
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Next::Line(String::from_utf8_lossy(&line).trim().to_string()));
            }
            // Asked before reading, so that what was written just before the end is not missed.
            let ended = self.child.try_wait()?;
            if self.events.read_to_end(&mut self.pending)? > 0 {
                continue;
            }
            if interrupted.load(Ordering::Relaxed) {
                return Ok(Next::Interrupted);
            }
            if let Some(status) = ended {
                return Ok(Next::Stopped(status));
            }
            let (computed, elapsed) = (cpu_time(self.child.id()).saturating_sub(spent), started.elapsed());
            if computed > patience || elapsed > STOPPED * patience {
                return Ok(Next::Silent { computed, elapsed });
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_AT_QEMU) && is_given_up(&self.messages) {
                return Ok(Next::Stuck);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The last lines that the kernel (or QEMU itself) printed.
    pub fn last_words(&self, lines: usize) -> Vec<String> {
        let mut words = tail(&self.messages, lines);
        words.extend(tail(&self.console, lines));
        words
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_given_up(messages: &Path) -> bool {
    tail(messages, REPORT).iter().any(|line| line.starts_with(GIVEN_UP))
}

fn tail(file: &Path, lines: usize) -> Vec<String> {
    const MOST: u64 = 64 << 10;
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|mut f| {
        let size = f.metadata()?.len();
        f.seek(SeekFrom::Start(size.saturating_sub(MOST)))?;
        f.read_to_end(&mut bytes)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    let all: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].iter().map(|l| l.to_string()).collect()
}

/// A new folder for what a machine boots from and says. It goes when it is dropped.
///
/// # Errors
/// The disk is full.
pub fn folder() -> Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("overbook-lab-").tempdir();
    dir.context("cannot make a temporary folder: is the disk full?")
}

/// How many machines of so many MiB the memory that is free has room for; one at least, and all where that is not known.
/// They touch a part of it: `make lab`'s, of 1,024, 1,024 and 2,560 MiB, took 2.6 GB at a time, with QEMU's own.
pub fn room_for(memory_mb: u32) -> usize {
    /// Per cent.
    const TOUCHED: u64 = 60;
    let free = procfs::Meminfo::current().ok().and_then(|info| info.mem_available);
    let each = (u64::from(memory_mb.max(1)) << 20) * TOUCHED / 100;
    free.map_or(usize::MAX, |free| ((free / each) as usize).max(1))
}

/// Checks that a folder has room for a run.
///
/// # Errors
/// Less than `need_mb` free.
pub fn check_disk(dir: &Path, need_mb: u64) -> Result<()> {
    let stat =
        nix::sys::statvfs::statvfs(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    let free_mb = (stat.blocks_available() * stat.fragment_size()) >> 20;
    if free_mb < need_mb {
        bail!(
            "{} has only {free_mb} MB free, and a run needs {need_mb} MB: free some, or set TMPDIR",
            dir.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(host: &Host, accel: Accel, patched: bool) -> String {
        let at = Path::new("/x");
        let emulator = Emulator { program: at.into(), version: String::new(), patched };
        let kernel = Kernel {
            release: "7.0".into(),
            image: at.into(),
            modules: at.into(),
            config: None,
            origin: String::new(),
        };
        let boot = Boot {
            emulator: &emulator,
            kernel: &kernel,
            initramfs: at,
            dir: at,
            host,
            guest_weight: 16,
            arguments: "",
            accel,
            seed: 7,
        };
        let command = boot.command();
        command.get_args().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_process_computes_is_known() {
        let own = std::process::id();
        let before = cpu_time(own);
        while cpu_time(own) < before + Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert_eq!(cpu_time(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn topology_reaches_the_command_line() {
        let host = Host { cpus: 8, llcs: 4, nodes: 2, smt: 2, ..Host::default() };
        let text = line(&host, Accel::Icount, true);
        assert!(text.contains("-smp cpus=8,sockets=4,cores=1,threads=2"), "{text}");
        assert!(text.contains("-numa node,nodeid=1,memdev=node1,cpus=4-7 "), "{text}");
        assert!(text.contains("turn=5000,guest=16") && text.contains("-seed 7"), "{text}");
        assert!(!text.contains("setcpuid"), "{text}");
        let old = line(&host, Accel::Icount, false);
        assert!(!old.contains("turn=") && old.contains("setcpuid=pausefilter"), "{old}");
        let odd = Host { cpus: 6, llcs: 3, nodes: 3, ..Host::default() };
        let text = line(&odd, Accel::Icount, true);
        assert!(text.contains("id=node0,size=342M") && text.contains("id=node2,size=341M"), "{text}");
        let kvm = line(&host, Accel::Kvm, false);
        assert!(!kvm.contains("icount") && !kvm.contains("setcpuid"), "{kvm}");
    }

    #[test]
    fn what_kvm_cannot_execute_is_seen() {
        let dir = folder().unwrap();
        let messages = dir.path().join("qemu.log");
        std::fs::write(&messages, "qemu-system-x86_64: warning: a feature is missing\n").unwrap();
        assert!(!is_given_up(&messages));
        let report = "KVM internal error. Suberror: 1\nemulation failure\nRAX=0\nCode=83 fa <c4> 42\n";
        std::fs::write(&messages, report).unwrap();
        assert!(is_given_up(&messages));
    }

    #[test]
    fn tail_of_a_missing_file_is_empty() {
        assert!(tail(Path::new("/nonexistent"), 3).is_empty());
    }

    #[test]
    fn a_full_disk_is_one_sentence() {
        let error = check_disk(Path::new("/tmp"), u64::MAX >> 20).unwrap_err().to_string();
        assert!(error.contains("MB free") && !error.contains('\n'));
    }
}
