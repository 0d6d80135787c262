// SPDX-License-Identifier: GPL-2.0-only
//! What KVM this machine has, by the modules in sysfs.

use std::fmt;
use std::fs;
use std::path::Path;

/// The machine's KVM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kvm {
    /// `kvm_amd`, `kvm_intel`, or of another kind; `kvm` where only the common part has a name; empty if there is none.
    pub module: String,
    /// Part of the kernel's image rather than a module.
    pub built_in: bool,
}

impl Kvm {
    /// Looks at this machine.
    pub fn detect() -> Kvm {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Kvm::of(Path::new("/sys"), &cpuinfo)
    }

    /// Looks at the machine whose sysfs is this folder, and whose `/proc/cpuinfo` this text.
    pub fn of(sys: &Path, cpuinfo: &str) -> Kvm {
        let modules = sys.join("module");
        if !modules.join("kvm").exists() {
            return Kvm::default();
        }
        let entries = fs::read_dir(&modules).into_iter().flatten().flatten();
        let mut kinds: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("kvm_"))
            .collect();
        kinds.sort();
        // A kernel may have both vendors' built in, and use that of its CPU.
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        for (flag, kind) in [("svm", "kvm_amd"), ("vmx", "kvm_intel")] {
            if !flags.split_whitespace().any(|f| f == flag) && kinds.len() > 1 {
                kinds.retain(|k| k != kind);
            }
        }
        // Only what was loaded has a state.
        let built_in = !modules.join("kvm/initstate").exists();
        Kvm { module: kinds.first().map_or("kvm", String::as_str).into(), built_in }
    }

    /// Whether there is one at all.
    pub fn is_there(&self) -> bool {
        !self.module.is_empty()
    }

    /// A parameter of its module.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let value = fs::read_to_string(format!("/sys/module/{}/parameters/{name}", self.module)).ok()?;
        Some(value.trim().to_string())
    }
}

impl fmt::Display for Kvm {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match (self.is_there(), self.built_in) {
            (false, _) => f.write_str("none"),
            (true, false) => f.write_str(&self.module),
            (true, true) => write!(f, "{}, built into the kernel", self.module),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_named() {
        let sys = std::env::temp_dir().join(format!("overbook-sys-{}", std::process::id()));
        let make = |file: &str| fs::create_dir_all(sys.join("module").join(file)).unwrap();
        let found = |flags: &str| Kvm::of(&sys, &format!("flags\t\t: {flags}\n")).to_string();
        fs::create_dir_all(&sys).unwrap();
        assert_eq!(found("fpu svm"), "none");
        make("kvm");
        assert_eq!(found("fpu"), "kvm, built into the kernel");
        make("kvm_soft");
        assert_eq!(found("fpu"), "kvm_soft, built into the kernel");
        make("kvm_amd");
        make("kvm_intel");
        assert_eq!(found("fpu svm"), "kvm_amd, built into the kernel");
        assert_eq!(found("fpu vmx"), "kvm_intel, built into the kernel");
        // Neither vendor's works on this CPU.
        assert_eq!(found("fpu"), "kvm_soft, built into the kernel");
        make("kvm/initstate");
        assert_eq!(found("fpu svm"), "kvm_amd");
        fs::remove_dir_all(&sys).unwrap();
    }
}
