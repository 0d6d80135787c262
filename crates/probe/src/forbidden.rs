// SPDX-License-Identifier: GPL-2.0-only
//! Who forbids probes to root, and what to do about it.

use anyhow::Error;
use std::fs;

/// Bits of CapEff.
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

/// Whether the kernel said that this is not permitted. A program that its verifier refuses is another error (EACCES).
pub fn is(error: &Error) -> bool {
    // libbpf-rs passes on the text and the kind, which is the same for both, but not the number.
    format!("{error:#}").contains("(os error 1)")
}

/// One sentence: who forbids it, as far as can be told, and the remedy.
pub fn why() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cause, remedy) = cause(
        &read("/sys/kernel/security/lockdown"),
        &read("/proc/self/uid_map"),
        &read("/proc/self/status"),
    );
    format!(
        "the kernel does not permit KVM's probes and tracepoints (Operation not permitted): {cause}; {remedy}"
    )
}

/// Cause and remedy, from the kernel's files of these names.
fn cause(lockdown: &str, uid_map: &str, status: &str) -> (&'static str, &'static str) {
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let capabilities = u64::from_str_radix(field("CapEff:"), 16).unwrap_or(u64::MAX);
    let may = capabilities & SYS_ADMIN != 0 || capabilities & PERFMON_AND_BPF == PERFMON_AND_BPF;
    let mapped: Vec<&str> = uid_map.split_whitespace().collect();
    if lockdown.contains("[confidentiality]") {
        ("it is locked down (confidentiality)", "boot it with lockdown=integrity, or without lockdown")
    } else if !mapped.is_empty() && mapped != ["0", "0", "4294967295"] {
        ("this root is a container's only (a user namespace)", "run this on the host itself")
    } else if !may {
        (
            "this process has neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON, as in a container",
            "grant them, or run this on the host itself",
        )
    } else if field("Seccomp:") == "2" {
        (
            "a seccomp filter is set for this process, as in a container or a service",
            "lift it for bpf() and perf_event_open(), or run this on the host itself",
        )
    } else {
        (
            "root has all rights and the kernel is not locked down, so a security module or whoever built this kernel \
             forbids it",
            "look into the kernel's and the audit log, or use a stock kernel of your distribution",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn only_what_is_not_permitted_is_forbidden() {
        let error = |code| Error::new(libbpf_rs::Error::from_raw_os_error(code)).context("the probes");
        assert!(is(&error(1)));
        // EINTR, EACCES, EINVAL.
        assert!(![4, 13, 22].into_iter().any(|code| is(&error(code))));
        assert!(is(&Error::new(io::Error::from_raw_os_error(1))));
    }

    #[test]
    fn the_cause_is_told_with_its_remedy() {
        let all = "CapEff:\t000001ffffffffff\nSeccomp:\t0\nSeccomp_filters:\t0\n";
        let (bare, open, host) =
            (all.replace("1ffffffffff", "00000000000"), "[none] integrity confidentiality", "0 0 4294967295");
        let filtered = all.replace("Seccomp:\t0", "Seccomp:\t2");
        let split = all.replace("1ffffffffff", "0c000000000");
        for (lockdown, uid_map, status, expected, remedy) in [
            ("none integrity [confidentiality]", host, all, "locked down", "lockdown=integrity"),
            (open, "0 100000 65536", all, "user namespace", "on the host itself"),
            (open, host, &bare, "CAP_PERFMON", "grant"),
            (open, host, &filtered, "seccomp", "lift"),
            (open, host, all, "security module", "log"),
            (open, host, &split, "security module", "log"),
            ("", "", "", "security module", "log"),
        ] {
            let (cause, todo) = cause(lockdown, uid_map, status);
            assert!(cause.contains(expected) && todo.contains(remedy), "{cause}; {todo}");
        }
    }
}
