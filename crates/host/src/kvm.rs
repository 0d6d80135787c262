// SPDX-License-Identifier: GPL-2.0-only
//! What KVM on this host lets others see of its vCPUs' interrupts.

use std::fs;
use std::path::Path;

/// Which of a guest's IPIs KVM itself delivers, so that its tracepoints tell of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// No kvm module with BTF: nothing can be read of vCPUs.
    NoKvm,
    /// All sends and all EOIs exit.
    All,
    /// AMD's AVIC: only IPIs to vCPUs that do not run are reported.
    NotRunning,
    /// Intel's APICv: sends exit, EOIs mostly do not; receivers' APICs are read instead.
    Sends,
    /// Intel's IPI virtualization: no sends; receivers' pending interrupts are read instead.
    Pending,
}

impl Visibility {
    /// Looks at the modules' parameters.
    pub fn detect() -> Visibility {
        Visibility::of(Path::new("/sys"))
    }

    fn of(sys: &Path) -> Visibility {
        let on = |module: &str, parameter: &str| {
            let file = sys.join("module").join(module).join("parameters").join(parameter);
            fs::read_to_string(file).is_ok_and(|text| matches!(text.trim(), "Y" | "1"))
        };
        if !sys.join("kernel/btf/kvm").exists() {
            Visibility::NoKvm
        } else if on("kvm_amd", "avic") {
            Visibility::NotRunning
        } else if on("kvm_intel", "enable_ipiv") {
            Visibility::Pending
        } else if on("kvm_intel", "enable_apicv") {
            Visibility::Sends
        } else {
            Visibility::All
        }
    }

    /// Whether there is anything for the tracepoint of accepted interrupts.
    pub fn sends(self) -> bool {
        !matches!(self, Visibility::NoKvm | Visibility::Pending)
    }

    /// Whether all IPIs' sends are seen.
    pub fn all_sends(self) -> bool {
        matches!(self, Visibility::All | Visibility::Sends)
    }

    /// One line for people.
    pub fn describe(self) -> &'static str {
        match self {
            Visibility::NoKvm => "no kvm module is loaded",
            Visibility::All => "all IPIs",
            Visibility::NotRunning => "AVIC: IPIs to vCPUs that do not run, and pending interrupts",
            Visibility::Sends => "APICv: all IPIs, ends of interrupts from the APICs",
            Visibility::Pending => "IPI virtualization: pending interrupts only",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_decide() {
        let sys = std::env::temp_dir().join(format!("overbook-kvm-{}", std::process::id()));
        let set = |file: &str, text: &str| {
            let file = sys.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        fs::create_dir_all(&sys).unwrap();
        assert_eq!(Visibility::of(&sys), Visibility::NoKvm);
        set("kernel/btf/kvm", "");
        assert_eq!(Visibility::of(&sys), Visibility::All);
        set("module/kvm_intel/parameters/enable_apicv", "Y\n");
        assert_eq!(Visibility::of(&sys), Visibility::Sends);
        set("module/kvm_intel/parameters/enable_ipiv", "Y\n");
        assert!(!Visibility::of(&sys).sends());
        set("module/kvm_amd/parameters/avic", "1\n");
        assert_eq!(Visibility::of(&sys), Visibility::NotRunning);
        fs::remove_dir_all(&sys).unwrap();
    }
}
