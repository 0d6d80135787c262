// SPDX-License-Identifier: GPL-2.0-only
//! What must hold before the scheduler is loaded; every refusal is one sentence that says what to do.

use crate::cores;
use crate::ending::Refused;
use crate::scheduler;
use std::fs;
use std::path::{Path, PathBuf};

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const CGROUPS: &str = "/sys/fs/cgroup";
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Checks the kernel, the rights of the caller, that no other scheduler is loaded (but one of ours, to `replace`), and
/// that the scheduler is told of every group's `cpu.max`.
///
/// # Errors
/// One of these does not hold.
pub fn check(replace: bool) -> Result<(), Refused> {
    let refused = |why: &str| Err(Refused(why.into()));
    need_root("loading a scheduler")?;
    if !Path::new(SCHED_EXT).exists() {
        return refused(
            "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT): Debian's kernels have it from 6.16 on",
        );
    }
    if !Path::new(BTF).exists() {
        return refused("this kernel has no BTF (CONFIG_DEBUG_INFO_BTF), which BPF schedulers need");
    }
    if let Some(why) = isolation() {
        return Err(Refused(why));
    }
    if cores::processes_with_cookie().is_some_and(|found| !found.is_empty()) {
        return refused(
            "core scheduling is in use, and beside that kernels hang or throw the scheduler out: `overbook check` names who \
             uses it; end that, or stay with EEVDF",
        );
    }
    match loaded() {
        Some(other) if !other.starts_with("overbook") => {
            return Err(Refused(format!("the scheduler {other:?} is loaded already: stop it first")));
        }
        Some(_) if !replace => {
            return refused(
                "a scheduler of ours runs already: stop it first, or take over from one of the same kind with --replace",
            );
        }
        _ => {}
    }
    let limited = unenforced_limits();
    if !limited.is_empty() {
        return Err(Refused(format!(
            "cpu.max limits these groups, and this kernel (before 6.17) does not tell schedulers of it: {}; lift the \
             limits (write \"max\" to their cpu.max), boot a later kernel, or stay with EEVDF",
            limited.join(", ")
        )));
    }
    Ok(())
}

/// Checks that the caller is root, which `what` needs.
///
/// # Errors
/// It is not.
pub fn need_root(what: &str) -> Result<(), Refused> {
    if is_root() { Ok(()) } else { Err(Refused(format!("{what} needs root: run it with sudo"))) }
}

/// Why the kernel would take no scheduler, if CPUs were isolated at boot ("Not compatible with isolcpus= domain
/// isolation" in its log).
pub fn isolation() -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    isolates(&line).then(|| {
        "CPUs were isolated at boot (isolcpus=), and beside that kernels take no sched_ext scheduler: isolate them by a \
         cpuset (cpuset.cpus.partition = isolated) instead"
            .into()
    })
}

/// Whether a kernel's command line takes CPUs out of the scheduling domains.
fn isolates(line: &str) -> bool {
    let lists = line.split_whitespace().filter_map(|word| word.strip_prefix("isolcpus="));
    // Flags come before the CPUs; without one that is known, it is domains. Without CPUs it is nothing.
    lists.into_iter().any(|list| {
        let is_flag = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
        let (flags, cpus): (Vec<&str>, Vec<&str>) = list.split(',').partition(is_flag);
        let others = flags.iter().any(|flag| ["nohz", "managed_irq"].contains(flag));
        cpus.iter().any(|cpu| !cpu.is_empty()) && (flags.contains(&"domain") || !others)
    })
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Name of the sched_ext scheduler that is loaded.
pub fn loaded() -> Option<String> {
    let state = fs::read_to_string(format!("{SCHED_EXT}/state")).ok()?;
    if state.trim() != "enabled" {
        return None;
    }
    let name = fs::read_to_string(format!("{SCHED_EXT}/root/ops")).unwrap_or_default();
    Some(if name.trim().is_empty() { "unknown".into() } else { name.trim().into() })
}

/// Whether no sched_ext scheduler is loaded, and none is about to come or to go: only then is another one attached for sure.
pub fn is_free() -> bool {
    fs::read_to_string(format!("{SCHED_EXT}/state")).is_ok_and(|state| state.trim() == "disabled")
}

/// Groups whose `cpu.max` a scheduler of ours would break: none where the kernel tells schedulers of it.
pub fn unenforced_limits() -> Vec<String> {
    broken_by(keeps_limits(), Path::new(CGROUPS))
}

/// Whether the kernel tells schedulers of groups' `cpu.max`, so that they can keep it.
pub fn keeps_limits() -> bool {
    // Without BTF nobody can tell what the kernel has.
    Path::new(BTF).exists() && scheduler::enforces_limits()
}

/// Groups that have a `cpu.max`.
pub fn limited() -> Vec<String> {
    limited_groups(Path::new(CGROUPS))
}

fn broken_by(enforced: bool, root: &Path) -> Vec<String> {
    if enforced { Vec::new() } else { limited_groups(root) }
}

/// Groups below `root` that have a limit: a `cpu.max` other than "max", or a `cpu.cfs_quota_us` (cgroup v1) above zero.
fn limited_groups(root: &Path) -> Vec<String> {
    let mut limited = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.into()];
    while let Some(group) = open.pop() {
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
        let (max, quota) = (read("cpu.max"), read("cpu.cfs_quota_us").trim().parse::<i64>());
        if !max.is_empty() && !max.starts_with("max") || quota.is_ok_and(|quota| quota > 0) {
            let name = group.strip_prefix(root).unwrap_or(&group);
            limited.push(format!("/{}", name.display()));
        }
        let children = fs::read_dir(&group).into_iter().flatten().flatten();
        open.extend(children.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    limited.sort();
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolation_at_boot_is_seen() {
        for (line, expected) in [
            ("quiet isolcpus=1-3", true),
            ("isolcpus=domain,managed_irq,2 quiet", true),
            ("isolcpus=managed_irq,domain,2", true),
            ("isolcpus=managed_irq,2", false),
            ("isolcpus=nohz,2 nohz_full=2", false),
            ("quiet nohz_full=1-3", false),
            ("isolcpus=unheard_of,2", true),
            ("isolcpus=", false),
            ("isolcpus=domain", false),
            ("isolcpus=all", false),
            ("", false),
        ] {
            assert_eq!(isolates(line), expected, "{line}");
        }
    }

    #[test]
    fn limits_are_found_at_any_depth() {
        let root = std::env::temp_dir().join(format!("overbook-preflight-{}", std::process::id()));
        let deep = root.join("machine.slice/vm1.scope");
        fs::create_dir_all(&deep).unwrap();
        fs::write(root.join("machine.slice/cpu.max"), "max 100000\n").unwrap();
        fs::write(deep.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(limited_groups(&root), ["/machine.slice/vm1.scope"]);
        // As cgroup v1 has them.
        let old = root.join("cpu,cpuacct/machine");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("cpu.cfs_quota_us"), "50000\n").unwrap();
        fs::write(root.join("cpu,cpuacct/cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(limited_groups(&root), ["/cpu,cpuacct/machine", "/machine.slice/vm1.scope"]);
        fs::remove_dir_all(root.join("cpu,cpuacct")).unwrap();
        // They are in the way only where the scheduler is not told of them.
        assert_eq!(broken_by(false, &root), ["/machine.slice/vm1.scope"]);
        assert_eq!(broken_by(true, &root), [""; 0]);
        fs::remove_dir_all(&root).unwrap();
    }
}
