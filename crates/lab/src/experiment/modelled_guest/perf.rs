// SPDX-License-Identifier: GPL-2.0-only
//! The little of perf_event_open(2) that the lab uses: events on a CPU, whoever runs there.

use anyhow::{Context, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// PERF_TYPE_SOFTWARE.
pub const SOFTWARE: u32 = 1;
/// PERF_COUNT_SW_CPU_CLOCK.
pub const CPU_CLOCK: u64 = 0;

/// The head of struct perf_event_attr (include/uapi/linux/perf_event.h), as long as its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// PERF_TYPE_….
    pub kind: u32,
    /// Of this structure.
    pub size: u32,
    /// Event of that type.
    pub config: u64,
    /// Events per sample, or ns for clocks.
    pub sample_period: u64,
    /// What a sample tells.
    pub sample_type: u64,
    /// PERF_FORMAT_….
    pub read_format: u64,
    /// The bit field.
    pub flags: u64,
    /// Samples per wake-up.
    pub wakeup_events: u32,
    /// What only breakpoints use.
    pub rest: [u32; 3],
}

impl Attributes {
    /// Nothing asked for yet.
    pub fn new() -> Attributes {
        Attributes { size: size_of::<Attributes>() as u32, ..Attributes::default() }
    }
}

/// Opens an event on a CPU. It counts until all descriptors and mappings of it are gone.
///
/// # Errors
/// The kernel's reason.
pub fn open(attributes: &Attributes, cpu: u32) -> Result<OwnedFd> {
    // SAFETY: the attributes are valid for the call and as long as they say.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes, -1, cpu, -1, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot open a perf event on CPU {cpu}"));
    }
    // SAFETY: a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
