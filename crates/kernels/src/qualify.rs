// SPDX-License-Identifier: GPL-2.0-only
//! Whether a kernel will do: its configuration, its modules and its BTF.

use crate::Kernel;
use crate::image::{embedded_config, payload};
use crate::kfuncs;
use crate::modules::is_there;
use std::collections::HashMap;
use std::fs;

/// What is worth knowing of a suitable kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Ticks per second. Not known without its configuration: then only its modules and its BTF speak for it.
    pub hz: Option<u32>,
}

/// Options that must be built in, and what they are for.
const NEEDED: [(&str, &str); 9] = [
    ("SCHED_CLASS_EXT", "sched_ext"),
    ("DEBUG_INFO_BTF", "BTF"),
    ("BPF_SYSCALL", "BPF"),
    ("BPF_JIT", "the BPF JIT"),
    ("DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "fentry probes"),
    ("BLK_DEV_INITRD", "an initramfs"),
    ("DEVTMPFS", "devtmpfs"),
    ("SERIAL_8250_CONSOLE", "a serial console"),
    ("CGROUP_SCHED", "the cpu controller"),
];

/// Checks a kernel.
///
/// # Errors
/// Why it will not do: a sentence without its subject.
pub fn qualify(kernel: &Kernel) -> Result<Facts, String> {
    // What is cheap to find out comes first: to unpack an image takes a second or so.
    let mut config = kernel.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
    if let Some(text) = &config {
        check_config(&parse_config(text))?;
    }
    if !["kvm_amd", "kvm_intel"].iter().any(|name| is_there(kernel, name)) {
        return Err("it has neither kvm_amd nor kvm_intel".into());
    }
    if !is_there(kernel, "kvm") {
        return Err("its kvm module is missing".into());
    }
    let image = fs::read(&kernel.image)
        .map_err(|e| format!("its image {} cannot be read: {e}", kernel.image.display()))?;
    let elf = payload(&image)?;
    if config.is_none() {
        config = embedded_config(&elf);
        if let Some(text) = &config {
            check_config(&parse_config(text))?;
        }
    }
    let options = config.as_deref().map(parse_config);
    kfuncs::check(&elf).map_err(|why| {
        let pahole = options.as_ref().and_then(|o| o.get("PAHOLE_VERSION")?.parse::<u32>().ok());
        why.with_pahole(pahole)
    })?;
    Ok(Facts { hz: options.and_then(|options| options.get("HZ")?.parse().ok()) })
}

fn parse_config(text: &str) -> HashMap<&str, &str> {
    let lines = text.lines().filter_map(|l| l.strip_prefix("CONFIG_")?.split_once('='));
    lines.collect()
}

fn check_config(options: &HashMap<&str, &str>) -> Result<(), String> {
    for (option, purpose) in NEEDED {
        if options.get(option) != Some(&"y") {
            return Err(format!("it was built without {purpose} (CONFIG_{option})"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_missing_option_is_named() {
        let good: String = NEEDED.iter().map(|(o, _)| format!("CONFIG_{o}=y\n")).collect();
        assert_eq!(check_config(&parse_config(&good)), Ok(()));
        for bad in ["# CONFIG_SCHED_CLASS_EXT is not set", "CONFIG_SCHED_CLASS_EXT=m", ""] {
            let bad = good.replace("CONFIG_SCHED_CLASS_EXT=y", bad);
            let why = check_config(&parse_config(&bad)).unwrap_err();
            assert_eq!(why, "it was built without sched_ext (CONFIG_SCHED_CLASS_EXT)");
        }
    }

    #[test]
    fn every_reason_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let kernel = Kernel {
            release: "1.2.3".into(),
            image: dir.path().join("vmlinuz"),
            modules: dir.path().into(),
            config: Some(dir.path().join("config")),
            origin: "a test".into(),
        };
        let why = || {
            let why = qualify(&kernel).unwrap_err();
            assert!(!why.contains('\n') && !why.ends_with('.'), "{why}");
            why
        };
        at("config", "CONFIG_HZ=250\n");
        assert!(why().contains("without sched_ext"));
        let options: String = NEEDED.iter().map(|(o, _)| format!("CONFIG_{o}=y\n")).collect();
        at("config", &options);
        assert!(why().contains("neither kvm_amd nor kvm_intel"));
        at("modules.builtin", "kernel/arch/x86/kvm/kvm-amd.ko\n");
        assert!(why().contains("kvm module is missing"));
        at("modules.builtin", "kernel/arch/x86/kvm/kvm-amd.ko\nkernel/arch/x86/kvm/kvm.ko\n");
        assert!(why().contains("cannot be read"));
        at("vmlinuz", "x");
        assert!(why().contains("no bzImage"));
        assert!(Path::new(&kernel.image).exists());
    }
}
