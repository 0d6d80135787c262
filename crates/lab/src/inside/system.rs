// SPDX-License-Identifier: GPL-2.0-only
//! The few things that an init does.

use crate::protocol::MODULE_DIR;
use anyhow::{Context, Result};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

/// PAUSEs of a spin: with them it takes an emulated CPU about as long as the exit that ends it, as on Intel.
const PAUSES: u32 = 2000;
/// For how long KVM polls for a halted vCPU, ns: its own default on x86.
const HALT_POLL_NS: u32 = 200_000;

/// What KVM's modules are loaded with, if an instruction of a guest takes the time of so many. PAUSEs belong to one spin if
/// the other emulated CPUs had no more than their turns in between. The emulator has no AVIC, and Linux guests crawl
/// with its virtual GIF.
fn options(module: &str, guest_weight: u32) -> String {
    let pauses = PAUSES / guest_weight;
    match module {
        "kvm" if guest_weight > 1 => format!("halt_poll_ns={}", HALT_POLL_NS * guest_weight),
        "kvm-amd" => format!("avic=0 vgif=0 pause_filter_count={pauses} pause_filter_thresh=65535"),
        _ => String::new(),
    }
}

/// Mounts what the experiments read and write.
pub fn prepare() -> Result<()> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
        ("bpf", "/sys/fs/bpf"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        mount(Some(kind), at, Some(kind), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("cannot mount {kind} on {at}"))?;
    }
    // Where schedulers put the socket of their statistics.
    fs::create_dir_all("/var/run")?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu").context("the kernel has no cpu controller")?;
    loopback_up().context("the machine's own network address does not come up")?;
    // Without this, a controller that sleeps in a real-time class would be throttled beside busy CPUs.
    let _ = fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    Ok(())
}

/// 127.0.0.1, for what serves there. A kernel without such addresses has nobody who does.
fn loopback_up() -> Result<()> {
    let socket = match nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::empty(),
        None,
    ) {
        Err(nix::errno::Errno::EAFNOSUPPORT) => return Ok(()),
        other => other?,
    };
    // SAFETY: a structure of integers and arrays of these, for which zeroes are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
    // SAFETY: the request is valid for the call, and of the kind that this ioctl takes.
    let failed = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } != 0;
    if failed { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

/// Loads KVM for guests each of whose instructions takes the time of so many.
///
/// # Errors
/// There is no KVM then.
pub fn load_kvm(guest_weight: u32) -> Result<()> {
    load_modules(guest_weight)?;
    if !Path::new("/dev/kvm").exists() {
        anyhow::bail!("KVM does not work in this machine: neither kvm_amd nor kvm_intel could be loaded");
    }
    Ok(())
}

/// Loads the initramfs' modules, in the order of their names, without the other vendor's. One that refuses to load is not
/// an error here. For `guest_weight` see [`load_kvm`].
pub fn load_modules(guest_weight: u32) -> Result<()> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let foreign = if cpuinfo.contains(" svm ") { "kvm-intel" } else { "kvm-amd" };
    let mut files: Vec<_> = match fs::read_dir(Path::new("/").join(MODULE_DIR)) {
        Ok(dir) => dir.flatten().map(|entry| entry.path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    for path in files {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().replace('_', "-");
        let name = name.split_once('-').map_or(name.as_str(), |(_, name)| name);
        if name == foreign {
            continue;
        }
        let options = CString::new(options(name, guest_weight))?;
        if let Err(e) = finit_module(File::open(&path)?, &options, ModuleInitFlags::empty()) {
            log::debug!("{}: {e}", path.display());
        }
    }
    Ok(())
}

/// Ends the machine: QEMU exits at a reboot.
pub fn stop_machine() -> ! {
    let _ = reboot(RebootMode::RB_AUTOBOOT);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn kvm_is_stretched_as_its_guests_are() {
        assert_eq!(options("kvm", 1), "");
        assert_eq!(options("kvm", 16), "halt_poll_ns=3200000");
        assert!(options("kvm-amd", 1).contains("pause_filter_count=2000 "));
        assert!(options("kvm-amd", 16).contains("pause_filter_count=125 "));
        assert_eq!(options("virtio-mmio", 16), "");
    }
}
