// SPDX-License-Identifier: GPL-2.0-only
//! Whether a kernel will do: its configuration, its modules and its BTF.

use crate::{Kernel, module_closure};
use btf_rs::{Btf, Type};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::fs;
use std::io::Read;

/// What is worth knowing of a suitable kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// Ticks per second; 0 if the configuration does not say.
    pub hz: u32,
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
    let config = kernel.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
    let options = config.as_deref().map(parse_config);
    if let Some(options) = &options {
        check_config(options)?;
    }
    let is = |name: &str, value: &str| options.as_ref().is_some_and(|o| o.get(name) == Some(&value));
    if !is("KVM_AMD", "y") && !is("KVM_INTEL", "y") {
        let modules = module_closure(kernel, &["kvm_amd", "kvm_intel"]).map_err(|e| format!("{e:#}"))?;
        if modules.is_empty() {
            return Err("it has neither kvm_amd nor kvm_intel".into());
        }
    }
    let image = fs::read(&kernel.image).map_err(|e| format!("its image cannot be read: {e}"))?;
    let elf = payload(&image)?;
    check_btf(&elf)?;
    let hz = options.as_ref().and_then(|o| o.get("HZ")?.parse().ok()).unwrap_or(0);
    Ok(Facts { release: kernel.release.clone(), hz })
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

/// The ELF file inside a bzImage.
fn payload(image: &[u8]) -> Result<Vec<u8>, String> {
    // Offsets in the x86 boot protocol's setup header.
    const SETUP_SECTS: usize = 0x1f1;
    const MAGIC: usize = 0x202;
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    let word = |at: usize| {
        image.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, |b| u32::from_le_bytes(b) as usize)
    };
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        return Err("its image is no bzImage".into());
    }
    let sectors = match image[SETUP_SECTS] {
        0 => 4,
        n => usize::from(n),
    };
    let start = (sectors + 1) * 512 + word(PAYLOAD_OFFSET);
    let bytes = image.get(start..start + word(PAYLOAD_LENGTH)).ok_or("its image is cut short")?;
    // The four bytes behind the stream are the length of what comes out, for all formats but gzip, whose own.
    let mut out = Vec::new();
    let done = match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ruzstd::decoding::StreamingDecoder::new(bytes)
            .map_err(|e| e.to_string())
            .and_then(|mut d| d.read_to_end(&mut out).map_err(|e| e.to_string())),
        [0xfd, b'7', b'z', b'X', ..] => {
            xz2::read::XzDecoder::new(bytes).read_to_end(&mut out).map_err(|e| e.to_string())
        }
        [0x1f, 0x8b, ..] => {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).map_err(|e| e.to_string())
        }
        _ => {
            return Err(
                "its image is compressed in a way that is not known here (known: zstd, xz, gzip)".into()
            );
        }
    };
    done.map_err(|e| format!("its image cannot be decompressed: {e}"))?;
    Ok(out)
}

/// kfuncs with implicit arguments have two prototypes: one without the argument, for programs, and one whose
/// name ends in `_impl`. A pahole before 1.26 does not split them, and then no program that calls one loads.
fn check_btf(elf: &[u8]) -> Result<(), String> {
    let file = object::File::parse(elf).map_err(|e| format!("its image holds no ELF file: {e}"))?;
    let section = file.section_by_name(".BTF").ok_or("it has no BTF")?;
    let bytes = section.data().map_err(|e| format!("its BTF cannot be read: {e}"))?;
    let btf = Btf::from_bytes(bytes).map_err(|e| format!("its BTF cannot be read: {e}"))?;
    let mut kfuncs = 0;
    let (first, last) = btf.base().type_id_range();
    for id in first..=last {
        let Ok(Type::Func(function)) = &btf.resolve_type_by_id(id) else { continue };
        let Ok(name) = btf.resolve_name(function) else { continue };
        if !name.trim_start_matches('_').starts_with("scx_bpf_") || name.ends_with("_impl") {
            continue;
        }
        kfuncs += 1;
        let Ok(Type::FuncProto(prototype)) = btf.resolve_chained_type(function) else { continue };
        let mut names = prototype.parameters.iter().filter_map(|p| btf.resolve_name(p).ok());
        if names.any(|parameter| parameter == "aux") {
            return Err(format!(
                "its BTF was made by a pahole before 1.26, which gives kfuncs with implicit arguments ({name} and others) a wrong prototype"
            ));
        }
    }
    if kfuncs == 0 {
        return Err("its BTF knows no sched_ext kfunc".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_missing_option_is_named() {
        let good: String = NEEDED.iter().map(|(o, _)| format!("CONFIG_{o}=y\n")).collect();
        assert_eq!(check_config(&parse_config(&good)), Ok(()));
        let bad = good.replace("CONFIG_SCHED_CLASS_EXT=y", "# CONFIG_SCHED_CLASS_EXT is not set");
        let why = check_config(&parse_config(&bad)).unwrap_err();
        assert_eq!(why, "it was built without sched_ext (CONFIG_SCHED_CLASS_EXT)");
    }

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend([0; 16]);
        image.extend(payload);
        image
    }

    #[test]
    fn payloads_come_out_of_their_images() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"kernel").unwrap();
        assert_eq!(payload(&bzimage(&gzip.finish().unwrap())).unwrap(), b"kernel");
        assert!(payload(&bzimage(b"????")).unwrap_err().contains("not known here"));
        assert!(payload(b"short").unwrap_err().contains("no bzImage"));
        assert!(check_btf(b"kernel").unwrap_err().contains("no ELF"));
    }
}
