// SPDX-License-Identifier: GPL-2.0-only
//! What KVM on this host lets others see of its vCPUs' interrupts.

use crate::functions;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::OnceLock;

/// Probed where spins are counted.
pub const ON_SPIN: &str = "kvm_vcpu_on_spin";

/// Tracepoints of x86's interrupts, which KVM of other architectures does not have.
const INTERRUPTS: [&str; 2] = ["__traceiter_kvm_apic_accept_irq", "__traceiter_kvm_eoi"];

/// Which of a guest's IPIs KVM itself delivers, so that its tracepoints tell of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// No kvm, or a module without BTF: nothing can be read of vCPUs.
    NoKvm,
    /// A KVM without local APICs of its own, as other architectures have: neither sends nor ends.
    Other,
    /// All sends and all EOIs exit.
    All,
    /// AMD's AVIC: only IPIs to vCPUs that do not run are reported, and no EOIs; APICs are read as well.
    NotRunning,
    /// Intel's APICv: sends exit, EOIs mostly do not; receivers' APICs are read instead.
    Sends,
    /// Intel's IPI virtualization: no sends; receivers' pending interrupts are read instead.
    Pending,
}

impl Visibility {
    /// Looks at the modules' parameters.
    pub fn detect() -> Visibility {
        Visibility::of(Path::new("/sys"), Cpus::detect(), &|| functions::are_there(&INTERRUPTS))
    }

    fn of(sys: &Path, cpus: Cpus, has_interrupts: &dyn Fn() -> bool) -> Visibility {
        let on = |module: &str, parameter: &str| {
            let file = sys.join("module").join(module).join("parameters").join(parameter);
            fs::read_to_string(file).is_ok_and(|text| matches!(text.trim(), "Y" | "1"))
        };
        // What is built in has no BTF of its own, and no state of a module.
        let kvm = sys.join("module/kvm");
        let built_in = kvm.exists() && !kvm.join("initstate").exists();
        if !built_in && !sys.join("kernel/btf/kvm").exists() {
            Visibility::NoKvm
        } else if !has_interrupts() {
            Visibility::Other
        } else if cpus == Cpus::Amd && on("kvm_amd", "avic") {
            Visibility::NotRunning
        } else if cpus == Cpus::Intel && on("kvm_intel", "enable_ipiv") {
            Visibility::Pending
        } else if cpus == Cpus::Intel && on("kvm_intel", "enable_apicv") {
            Visibility::Sends
        } else {
            Visibility::All
        }
    }

    /// Whether there is anything for the tracepoint of accepted interrupts.
    pub fn sends(self) -> bool {
        !matches!(self, Visibility::NoKvm | Visibility::Other | Visibility::Pending)
    }

    /// Whether all IPIs' sends are seen.
    pub fn all_sends(self) -> bool {
        matches!(self, Visibility::All | Visibility::Sends)
    }

    /// Whether all ends of interrupts are seen.
    pub fn ends(self) -> bool {
        self == Visibility::All
    }

    /// Whether interrupts are posted before the local APIC has them.
    pub fn posts(self) -> bool {
        matches!(self, Visibility::Sends | Visibility::Pending)
    }

    /// One line for people.
    pub fn describe(self) -> &'static str {
        match self {
            Visibility::NoKvm => "nothing: there is no kvm, or its module has no BTF",
            Visibility::Other => "nothing: this KVM does not tell of interrupts",
            Visibility::All => "all IPIs",
            Visibility::NotRunning => "AVIC: IPIs to vCPUs that do not run; the rest from the APICs",
            Visibility::Sends => "APICv: all IPIs, ends of interrupts from the APICs",
            Visibility::Pending => "IPI virtualization: pending interrupts only",
        }
    }
}

/// Whose virtualization the CPUs have. A kernel may have both of kvm's halves built in, with the parameters of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cpus {
    Intel,
    Amd,
    Other,
}

impl Cpus {
    fn detect() -> Cpus {
        static CPUS: OnceLock<Cpus> = OnceLock::new();
        *CPUS.get_or_init(|| {
            let Ok(file) = File::open("/proc/cpuinfo") else { return Cpus::Other };
            let mut lines = BufReader::new(file).lines().map_while(Result::ok);
            Cpus::of(&lines.find(|line| line.starts_with("flags")).unwrap_or_default())
        })
    }

    /// As a line of flags says.
    fn of(flags: &str) -> Cpus {
        let has = |flag| flags.split_whitespace().any(|word| word == flag);
        match () {
            () if has("vmx") => Cpus::Intel,
            () if has("svm") => Cpus::Amd,
            () => Cpus::Other,
        }
    }
}

/// Which of kvm's modules for Intel and AMD are there: they come after kvm itself, and say how interrupts are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vendors([bool; 2]);

impl Vendors {
    /// Looks at the modules.
    pub fn detect() -> Vendors {
        Vendors::of(Path::new("/sys"))
    }

    fn of(sys: &Path) -> Vendors {
        // While it is coming, its parameters are what was asked for, and not what the hardware can.
        let lives = |module: &str| {
            let module = sys.join("module").join(module);
            fs::read_to_string(module.join("initstate"))
                .map_or(module.exists(), |state| state.trim() == "live")
        };
        Vendors(["kvm_intel", "kvm_amd"].map(lives))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendors_module_that_comes_later_is_seen() {
        let sys = std::env::temp_dir().join(format!("overbook-vendors-{}", std::process::id()));
        let before = Vendors::of(&sys);
        let state = sys.join("module/kvm_intel/initstate");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "coming\n").unwrap();
        assert_eq!(before, Vendors::of(&sys));
        fs::write(&state, "live\n").unwrap();
        assert_ne!(before, Vendors::of(&sys));
        fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn parameters_decide() {
        let sys = std::env::temp_dir().join(format!("overbook-kvm-{}", std::process::id()));
        let set = |file: &str, text: &str| {
            let file = sys.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let see = || Visibility::of(&sys, Cpus::Intel, &|| true);
        fs::create_dir_all(&sys).unwrap();
        assert_eq!(see(), Visibility::NoKvm);
        set("kernel/btf/kvm", "");
        assert_eq!(see(), Visibility::All);
        set("module/kvm_intel/parameters/enable_apicv", "Y\n");
        assert_eq!(see(), Visibility::Sends);
        set("module/kvm_intel/parameters/enable_ipiv", "Y\n");
        assert!(!see().sends());
        assert_eq!(Visibility::of(&sys, Cpus::Intel, &|| false), Visibility::Other);
        // Built in, both have parameters, and those of the one that the CPUs lack say what was asked for.
        assert_eq!(Visibility::of(&sys, Cpus::Amd, &|| true), Visibility::All);
        set("module/kvm_amd/parameters/avic", "1\n");
        assert_eq!(Visibility::of(&sys, Cpus::Amd, &|| true), Visibility::NotRunning);
        assert!(!see().sends());
        fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn a_built_in_kvm_is_one() {
        let sys = std::env::temp_dir().join(format!("overbook-built-in-{}", std::process::id()));
        let see = || Visibility::of(&sys, Cpus::Other, &|| true);
        fs::create_dir_all(sys.join("module/kvm/parameters")).unwrap();
        assert_eq!(see(), Visibility::All);
        // A module without BTF.
        fs::write(sys.join("module/kvm/initstate"), "live\n").unwrap();
        assert_eq!(see(), Visibility::NoKvm);
        fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn flags_say_whose_cpus_they_are() {
        assert_eq!(Cpus::of("flags\t\t: fpu vme vmx smx"), Cpus::Intel);
        assert_eq!(Cpus::of("flags\t\t: fpu svm svme"), Cpus::Amd);
        assert_eq!(Cpus::of("flags\t\t: fpu vmx_unlike"), Cpus::Other);
    }
}
