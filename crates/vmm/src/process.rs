// SPDX-License-Identifier: GPL-2.0-only
//! The VM process, and its parent's handle on it.
//!
//! The two talk in lines of JSON: the parent sends a [`VmConfig`] and later `go`; the child answers `ready`
//! with its vCPU threads, and says so if the guest stops. Closing the pipe ends the VM, so a parent that dies
//! leaves nothing behind.

use crate::machine::{self, Stop};
use crate::memory::GuestMemory;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand under which a program that uses [`VmProcess`] must call [`serve`].
pub const VM_SUBCOMMAND: &str = "__vm";

/// One VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmConfig {
    /// Name, as in reports.
    pub name: String,
    /// 1 to 256.
    pub vcpus: u32,
    /// Whether PAUSE loops exit to KVM; `false` switches pause-loop exiting off for this VM.
    pub ple: bool,
    /// [`GuestMemory::path`] of the parent's memory.
    pub memory: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Ready { tids: Vec<i32>, tsc_khz: u32 },
    Stopped { vcpu: usize, why: String },
    Failed { why: String },
}

/// A running VM process. Dropping it kills the VM.
pub struct VmProcess {
    child: Child,
    /// Readable once it has ended.
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    events: Receiver<Event>,
    /// Thread ids of the vCPUs.
    pub tids: Vec<i32>,
    /// Frequency of the guest's TSC.
    pub tsc_khz: u32,
}

impl VmProcess {
    /// Starts a VM; its vCPUs wait for [`VmProcess::go`]. The current program must serve [`VM_SUBCOMMAND`].
    ///
    /// # Errors
    /// The VM cannot be created; the message is the child's own.
    pub fn spawn(config: &VmConfig) -> Result<VmProcess> {
        let mut child = Command::new("/proc/self/exe")
            .arg(VM_SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a VM process")?;
        let mut stdin = child.stdin.take().context("no pipe to the VM process")?;
        let stdout = child.stdout.take().context("no pipe from the VM process")?;
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { break };
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        writeln!(stdin, "{}", serde_json::to_string(config)?).context("the VM process went away")?;
        let pidfd = pidfd_of(&child)?;
        let mut vm = VmProcess { child, pidfd, stdin: Some(stdin), events, tids: Vec::new(), tsc_khz: 0 };
        match vm.events.recv_timeout(Duration::from_secs(120)) {
            Ok(Event::Ready { tids, tsc_khz }) => (vm.tids, vm.tsc_khz) = (tids, tsc_khz),
            Ok(Event::Failed { why }) => bail!("{}: {why}", config.name),
            Ok(Event::Stopped { vcpu, why }) => bail!("{}: vCPU {vcpu} stopped at once: {why}", config.name),
            Err(_) => bail!("{}: the VM process died or hangs before it was ready", config.name),
        }
        Ok(vm)
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets the vCPUs run.
    ///
    /// # Errors
    /// The process has died.
    pub fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the VM is already stopping")?;
        writeln!(stdin, "go").context("the VM process died before it could run")
    }

    /// Waits until one of these processes has ended, at most for so long: which one it is.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn first_end(vms: &[VmProcess], length: Duration) -> Result<Option<usize>> {
        let mut polled: Vec<libc::pollfd> = vms
            .iter()
            .map(|vm| libc::pollfd { fd: vm.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        let end = Instant::now() + length;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let limit = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: both point to what lives until the call returns.
            let ready = unsafe {
                libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &limit, std::ptr::null())
            };
            let why = std::io::Error::last_os_error();
            ensure!(
                ready >= 0 || why.kind() == ErrorKind::Interrupted,
                "cannot wait for VM processes: {why}"
            );
            if ready == 0 {
                return Ok(None);
            }
            if let Some(nth) = polled.iter().position(|one| one.revents != 0) {
                return Ok(Some(nth));
            }
        }
    }

    /// Why the guest stopped by itself, if it did.
    pub fn stopped(&mut self) -> Option<String> {
        match self.events.try_recv() {
            Ok(Event::Stopped { vcpu, why }) => Some(format!("vCPU {vcpu}: {why}")),
            Ok(Event::Failed { why }) => Some(why),
            _ => match self.child.try_wait() {
                Ok(Some(status)) => Some(format!("the VM process ended: {status}")),
                _ => None,
            },
        }
    }
}

impl VmProcess {
    /// Ends it without waiting for its end, which dropping it does: several VMs that end one after the other are in each
    /// other's way.
    pub fn end(&mut self) {
        drop(self.stdin.take());
        // It may be gone already, and that is as good.
        let _ = self.child.kill();
    }
}

impl Drop for VmProcess {
    fn drop(&mut self) {
        self.end();
        let _ = self.child.wait();
    }
}

/// A file that stands for a child that nobody has waited for (Linux 5.3 and later).
fn pidfd_of(child: &Child) -> Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    ensure!(fd >= 0, "cannot wait for a VM process: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The body of a VM process: reads its orders from stdin, and ends with it.
///
/// # Errors
/// The orders make no sense. What fails in KVM is told to the parent instead.
pub fn serve() -> Result<()> {
    // SAFETY: a plain system call; it asks the kernel to end this process with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut lines = std::io::stdin().lines();
    let first = lines
        .next()
        .ok_or_else(|| anyhow!("a VM process takes its orders from its parent, not from you"))??;
    let config: VmConfig = serde_json::from_str(&first)
        .context("a VM process takes its orders from its parent, not from you")?;
    // So that `top` and friends call it by its name.
    if let Ok(name) = CString::new(config.name.as_str()) {
        // SAFETY: the name is a string that lives until the call returns; the kernel cuts it to size.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    let out = Arc::new(Mutex::new(std::io::stdout()));
    if let Err(e) = run(&config, &out, &mut lines) {
        tell(&out, &Event::Failed { why: format!("{e:#}") });
    }
    Ok(())
}

type Out = Arc<Mutex<std::io::Stdout>>;

fn tell(out: &Out, event: &Event) {
    if let (Ok(line), Ok(mut out)) = (serde_json::to_string(event), out.lock()) {
        // Nobody to tell means that the parent is gone, and then this process ends as well.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

fn run(
    config: &VmConfig,
    out: &Out,
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
) -> Result<()> {
    let memory = GuestMemory::open(&config.memory)?;
    let machine = machine::build(&memory, config.vcpus, config.ple)?;
    let tsc_khz = machine.tsc_khz;
    let start = Arc::new(Barrier::new(config.vcpus as usize + 1));
    let (tid_sender, tids) = channel();
    for (index, mut vcpu) in machine.vcpus.into_iter().enumerate() {
        let (start, tid_sender, out) = (start.clone(), tid_sender.clone(), out.clone());
        let memory = GuestMemory::open(&config.memory)?;
        // QEMU's name for its vCPU threads, so that tools that look for it find it.
        thread::Builder::new().name(format!("CPU {index}/KVM")).spawn(move || {
            // SAFETY: a plain system call without arguments.
            let tid = unsafe { libc::gettid() };
            let _ = tid_sender.send((index, tid));
            start.wait();
            let why = match machine::run(&mut vcpu) {
                Stop::Fault => memory
                    .counters(index as u32)
                    .ok()
                    .and_then(|c| c.fault)
                    .unwrap_or_else(|| "unknown fault".into()),
                Stop::Broken(why) => why,
            };
            tell(&out, &Event::Stopped { vcpu: index, why });
        })?;
    }
    let mut ready: Vec<(usize, i32)> = tids.iter().take(config.vcpus as usize).collect();
    ready.sort_unstable();
    tell(out, &Event::Ready { tids: ready.into_iter().map(|(_, tid)| tid).collect(), tsc_khz });
    match lines.next() {
        Some(Ok(line)) if line == "go" => {
            start.wait();
        }
        _ => return Ok(()),
    }
    // The vCPUs run until the parent closes the pipe or kills this process.
    for _ in lines {}
    std::process::exit(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in a VM's place.
    fn idle() -> VmProcess {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::piped()).spawn().expect("sleep");
        let (stdin, pidfd) = (child.stdin.take(), pidfd_of(&child).unwrap());
        VmProcess { child, pidfd, stdin, events: channel().1, tids: Vec::new(), tsc_khz: 0 }
    }

    #[test]
    fn who_ends_first_is_found_and_nobody_is_waited_for_in_vain() {
        let mut vms = [idle(), idle()];
        assert_eq!(VmProcess::first_end(&vms, Duration::from_millis(1)).unwrap(), None);
        vms[1].end();
        assert_eq!(VmProcess::first_end(&vms, Duration::from_secs(600)).unwrap(), Some(1));
        assert_eq!(VmProcess::first_end(&[], Duration::ZERO).unwrap(), None);
    }
}
