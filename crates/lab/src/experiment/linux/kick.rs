// SPDX-License-Identifier: GPL-2.0-only
//! Makes Linux guests reliable on an emulated host (docs/lab.md, "Linux guests inside"): QEMU's VMRUN may deliver an
//! injected interrupt a second time unless the guest is left soon after.
//!
//! A perf event at every entry that injects, with a wake-up at each, raises a self-IPI: the CPU leaves the guest
//! before its first instruction.

use crate::perf::{self, Attributes};
use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;

const TRACEPOINT: &str = "/sys/kernel/tracing/events/kvm/kvm_entry/id";
/// Bit 31 of the entry's interruption information: it injects.
const INJECTS: &str = "intr_info & 0x80000000";

/// Arms it on every CPU for as long as this process lives.
///
/// # Errors
/// This kernel's kvm_entry does not say whether it injects.
pub fn arm(cpus: &[u32]) -> Result<()> {
    let id = fs::read_to_string(TRACEPOINT).with_context(|| format!("cannot read {TRACEPOINT}"))?;
    let attributes = Attributes {
        kind: perf::TRACEPOINT,
        config: id.trim().parse()?,
        sample_period: 1,
        sample_type: perf::SAMPLE_TIME,
        wakeup_events: 1,
        ..Attributes::new()
    };
    let filter = CString::new(INJECTS)?;
    for cpu in cpus {
        let event = perf::open(&attributes, *cpu)?;
        // SAFETY: the descriptor is a perf event's, and the filter a string that outlives the call.
        if unsafe { libc::ioctl(event.as_raw_fd(), perf::SET_FILTER, filter.as_ptr()) } != 0 {
            bail!("no filter: {}", std::io::Error::last_os_error());
        }
        // Mapped read-only it is overwritten for ever: nobody has to read.
        // SAFETY: a new mapping, which nobody looks into.
        let buffer = unsafe {
            let length = 2 * libc::sysconf(libc::_SC_PAGESIZE) as usize;
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if buffer == libc::MAP_FAILED {
            bail!("no buffer: {}", std::io::Error::last_os_error());
        }
        // The mapping keeps the event.
        drop(event);
    }
    Ok(())
}
