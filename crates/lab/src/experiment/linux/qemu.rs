// SPDX-License-Identifier: GPL-2.0-only
//! One Linux guest: a QEMU inside the host, and the serial line to the agent in it.

use crate::machine::task::now_ns;
use crate::protocol::{FIRMWARE_DIR, GuestAnswer, GuestCount, GuestOrder, INNER_INITRAMFS, INNER_KERNEL};
use crate::scenario::{LinuxSpec, Paravirtual};
use anyhow::{Context, Error, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use overbook_kernels::emulator::PROGRAM;
use std::collections::VecDeque;
use std::fs::{self, DirEntry, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Longest silence of a guest, before dilation: it loads a scheduler meanwhile, which takes it minutes if it shares its CPUs.
const PATIENCE: Duration = Duration::from_secs(300);
/// QEMU itself is there after this time, ns, or never.
const START_NS: u64 = 60_000_000_000;
/// Lines of a guest's console that are kept.
const LAST_WORDS: usize = 12;

/// Steal times as KVM gives them; `qemu64` and microvm, as every device and feature less is one less to emulate. Without `arat`
/// a guest does not trust its timers while it idles, and idle vCPUs tick 250 times a second.
const CPU: &str = "qemu64,+x2apic,+tsc-deadline,+arat,+kvm-steal-time";
const MACHINE: &str = "microvm,pit=off,pic=off,rtc=off";
const COMMAND_LINE: &str = "console=ttyS0 quiet noautogroup reboot=t panic=-1 noxsave mitigations=off \
     random.trust_cpu=on cryptomgr.notests initcall_blacklist=load_system_certificate_list,jent_mod_init";

/// kHz of the emulator's TSC.
const TSC_KHZ: u32 = 1_000_000;

/// What QEMU offers by itself of KVM's paravirtual features, and what it does not.
const OFFERED: [&str; 2] = ["kvm-pv-eoi", "kvm-asyncpf"];
const NOT_OFFERED: [&str; 4] = ["kvm-pv-unhalt", "kvm-pv-tlb-flush", "kvm-pv-ipi", "kvm-pv-sched-yield"];

/// The guest's CPU. A guest whose time is stretched is not told the host's.
fn cpu(paravirtual: Paravirtual, weight: u32) -> String {
    let (sign, features): (_, &[&str]) = match paravirtual {
        Paravirtual::Default => ('+', &[]),
        Paravirtual::All => ('+', &NOT_OFFERED),
        Paravirtual::None => ('-', &OFFERED),
    };
    let cpu = features.iter().fold(CPU.to_string(), |cpu, feature| format!("{cpu},{sign}{feature}"));
    if weight > 1 { cpu + ",-kvmclock,-kvmclock-stable-bit" } else { cpu }
}

/// What the guest's kernel is told. One that takes its TSC for so many times as fast has a second that is as many times
/// as long, and with it timers, ticks and slices.
fn command_line(weight: u32) -> String {
    match weight {
        1 => COMMAND_LINE.into(),
        _ => format!("{COMMAND_LINE} tsc=reliable tsc_early_khz={}", TSC_KHZ * weight),
    }
}

/// What guests answered, or why one could not do what it was told.
pub type Answered<T> = std::result::Result<T, String>;

/// A running guest. Dropping it kills it.
pub struct LinuxVm {
    /// Name in tables.
    pub name: String,
    /// Threads of the vCPUs.
    pub tids: Vec<i32>,
    child: Child,
    port: BufReader<UnixStream>,
    /// QEMU's own messages.
    messages: PathBuf,
    last_words: VecDeque<String>,
}

impl LinuxVm {
    /// Starts QEMU on `cpus` and finds the vCPUs; the guest boots meanwhile. An instruction of it takes the time of `weight`.
    ///
    /// # Errors
    /// QEMU does not start; the message is its own.
    pub fn start(name: &str, spec: &LinuxSpec, vcpus: u32, cpus: &[u32], weight: u32) -> Result<LinuxVm> {
        let (socket, messages) = (format!("/tmp/{name}.socket"), PathBuf::from(format!("/tmp/{name}.log")));
        let output = File::create(&messages)?;
        let mut command = Command::new(format!("/bin/{PROGRAM}"));
        command
            .args(["-L", &format!("/{FIRMWARE_DIR}"), "-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-no-reboot", "-accel", "kvm", "-cpu", &cpu(spec.paravirtual, weight), "-M", MACHINE])
            .args(["-name", &format!("guest={name},debug-threads=on")])
            .args(["-smp", &vcpus.to_string(), "-m", &spec.memory_mb().to_string()])
            .args(["-kernel", &format!("/{INNER_KERNEL}"), "-initrd", &format!("/{INNER_INITRAMFS}")])
            .args(["-append", &command_line(weight)])
            .args([
                "-chardev",
                &format!("socket,id=port,path={socket},server=on,wait=on"),
                "-serial",
                "chardev:port",
            ])
            // What libvirt makes of the <channel> of docs/guest.md: there is a host to tell something, or not.
            .args(["-chardev", "socket,id=told,path=/run/overbook/guests.sock,reconnect=1"])
            .args([
                "-device",
                "virtio-serial-device",
                "-device",
                "virtserialport,chardev=told,name=org.overbook.0",
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(*cpu as usize)?;
        }
        // SAFETY: both calls are plain system calls.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                sched_setaffinity(Pid::from_raw(0), &set).map_err(Into::into)
            });
        }
        let mut child = command.spawn().context("cannot start QEMU in the host")?;
        let start = now_ns();
        let mut port = None;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("{name}: QEMU ended ({status}): {}", one_line(&messages));
            }
            // It waits for somebody at the port, and only then makes the vCPUs.
            if port.is_none() {
                port = UnixStream::connect(&socket).ok();
            }
            let tids = vcpu_threads(child.id());
            if let Some(port) = port.as_ref().filter(|_| tids.len() == vcpus as usize) {
                port.set_read_timeout(Some(PATIENCE * weight))?;
                let port = BufReader::new(port.try_clone()?);
                let (name, last_words) = (name.into(), VecDeque::new());
                return Ok(LinuxVm { name, tids, child, port, messages, last_words });
            }
            if now_ns() - start > START_NS {
                let _ = child.kill();
                bail!("{name}: QEMU has not started its vCPUs within {} s", START_NS / 1_000_000_000);
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until the agent in it is there.
    ///
    /// # Errors
    /// As [`LinuxVm::answer`].
    pub fn ready(&mut self) -> Result<()> {
        self.answer()?.map(drop).map_err(Error::msg)
    }

    /// Sends an order, without waiting for the answer.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn tell(&mut self, order: &GuestOrder) -> Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        let outcome = self.port.get_mut().write_all(line.as_bytes());
        outcome.with_context(|| format!("{} is gone: {}", self.name, self.words()))
    }

    /// Waits for the answer to an order; the inner error says why the guest could not do it.
    ///
    /// # Errors
    /// It has stopped, or is silent for too long.
    pub fn answer(&mut self) -> Result<Answered<GuestCount>> {
        loop {
            let mut line = String::new();
            match self.port.read_line(&mut line) {
                Ok(0) => bail!("{} has stopped: {}", self.name, self.words()),
                Ok(_) => {}
                Err(e) => bail!("{} does not answer ({e}): {}", self.name, self.words()),
            }
            match serde_json::from_str(&line) {
                Ok(GuestAnswer::Done(count)) => return Ok(Ok(count)),
                Ok(GuestAnswer::Failed(why)) => return Ok(Err(format!("{}: {why}", self.name))),
                // The kernel speaks on this line too.
                Err(_) => {
                    self.last_words.push_back(line.trim().into());
                    if self.last_words.len() > LAST_WORDS {
                        self.last_words.pop_front();
                    }
                }
            }
        }
    }

    fn words(&self) -> String {
        let said: Vec<&str> = self.last_words.iter().map(String::as_str).collect();
        let of_qemu = one_line(&self.messages);
        let of_qemu = if of_qemu.is_empty() { of_qemu } else { format!("; QEMU: {of_qemu}") };
        format!("it last said {:?}{of_qemu}", said.join(" | "))
    }
}

/// A file's lines in one; nothing if it cannot be read.
fn one_line(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().replace('\n', "; ")
}

/// Threads of QEMU's vCPUs that are there, in the order of their names.
fn vcpu_threads(pid: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let vcpu = |entry: DirEntry| -> Option<(u32, i32)> {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let nth = name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()?;
        Some((nth, entry.file_name().to_string_lossy().parse().ok()?))
    };
    let mut found: Vec<(u32, i32)> = threads.filter_map(vcpu).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, tid)| tid).collect()
}

impl Drop for LinuxVm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
