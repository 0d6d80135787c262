// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says of itself, and CPUs that go and come.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

/// Words of the kernel that mean that something is wrong.
const COMPLAINTS: [&str; 6] =
    ["runnable task stall", "runtime error", "soft lockup", "BUG:", "WARNING:", "rcu: INFO"];

/// Where scx_stats serves.
const STATS_SOCKET: &str = "/var/run/scx/root/stats";

/// Whether a scheduler of ours hears orders and tells its statistics: a moment after it was enabled.
pub fn serves_statistics() -> bool {
    UnixStream::connect(STATS_SOCKET).is_ok()
}

/// How often a scheduler has been enabled in this boot.
pub fn restarts() -> Result<u64> {
    Ok(fs::read_to_string("/sys/kernel/sched_ext/enable_seq")?.trim().parse()?)
}

/// Takes a CPU off or on; the first cannot go everywhere.
pub fn set_online(cpu: u32, online: bool) -> Result<()> {
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), if online { "1" } else { "0" })
        .with_context(|| format!("cannot take CPU {cpu} off or on"))
}

/// The kernel's first complaint of this boot.
pub fn complaints() -> Option<String> {
    let log = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut buffer = [0; 8192];
    // Every read is one record; the end is EAGAIN.
    while let Ok(n) = nix::unistd::read(&log, &mut buffer) {
        let line = String::from_utf8_lossy(&buffer[..n]).into_owned();
        if COMPLAINTS.iter().any(|word| line.contains(word)) {
            return Some(line.lines().next().unwrap_or_default().to_string());
        }
    }
    None
}
