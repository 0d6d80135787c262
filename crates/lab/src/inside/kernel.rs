// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says of itself, and CPUs that go and come.

use anyhow::{Context, Result};
use nix::errno::Errno;
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

/// The kernel's first complaint of this boot, as far back as its log goes.
///
/// # Errors
/// The log cannot be read.
pub fn complaints() -> Result<Option<String>> {
    let log = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let log = log.context("cannot read the kernel's log")?;
    let mut buffer = [0; 8192];
    loop {
        // Every read is one record.
        let line = match nix::unistd::read(&log, &mut buffer) {
            Ok(n) => String::from_utf8_lossy(&buffer[..n]).into_owned(),
            Err(Errno::EAGAIN) => return Ok(None),
            // Written over meanwhile: the next one is read.
            Err(Errno::EPIPE) => continue,
            Err(why) => return Err(why).context("cannot read the kernel's log"),
        };
        if COMPLAINTS.iter().any(|word| line.contains(word)) {
            return Ok(Some(line.lines().next().unwrap_or_default().to_string()));
        }
    }
}
