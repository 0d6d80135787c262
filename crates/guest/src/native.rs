// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own steal governor (`drivers/virt/steal_governor`, Linux 7.4): two that pack the same guest would each
//! take the other's effect for the host's.

use overbook_cli::cpulist;
use overbook_scheduler::ending::Refused;
use std::fs;
use std::path::Path;

/// Refuses to pack a guest that its kernel packs.
///
/// # Errors
/// The kernel's governor is loaded and not switched off, or has taken CPUs away; one sentence.
pub fn refuse() -> Result<(), Refused> {
    if is_at_work(Path::new("/sys")) {
        return Err(Refused(
            "the kernel's own steal governor packs this guest: unload it (modprobe -r steal_governor), or leave the guest to it"
                .into(),
        ));
    }
    Ok(())
}

/// Whether the kernel of a machine with this `/sys` packs.
pub fn is_at_work(sys: &Path) -> bool {
    let cpus = sys.join("devices/system/cpu");
    let list = |name: &str| {
        fs::read_to_string(cpus.join(name)).ok().and_then(|text| cpulist::parse(text.trim()).ok())
    };
    let governor = sys.join("module/steal_governor");
    let is_off = fs::read_to_string(governor.join("parameters/enabled")).is_ok_and(|text| text.trim() == "N");
    governor.exists() && !is_off
        || list("preferred").is_some_and(|preferred| list("online").is_some_and(|online| preferred != online))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_governor_shows_by_its_module_or_by_what_it_did() {
        let sys = tempfile::tempdir().unwrap();
        let cpus = sys.path().join("devices/system/cpu");
        fs::create_dir_all(&cpus).unwrap();
        fs::write(cpus.join("online"), "0-3\n").unwrap();
        assert!(!is_at_work(sys.path()), "a kernel without it");
        fs::write(cpus.join("preferred"), "0-3\n").unwrap();
        assert!(!is_at_work(sys.path()), "all CPUs are preferred");
        fs::write(cpus.join("preferred"), "0-1\n").unwrap();
        assert!(is_at_work(sys.path()));
        fs::write(cpus.join("preferred"), "0-3\n").unwrap();
        fs::create_dir_all(sys.path().join("module/steal_governor/parameters")).unwrap();
        assert!(is_at_work(sys.path()));
        // The kernel series' own has a switch, and may be built in.
        let enabled = sys.path().join("module/steal_governor/parameters/enabled");
        fs::write(&enabled, "N\n").unwrap();
        assert!(!is_at_work(sys.path()), "it is switched off");
        fs::write(&enabled, "Y\n").unwrap();
        assert!(is_at_work(sys.path()));
    }
}
