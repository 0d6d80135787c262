// SPDX-License-Identifier: GPL-2.0-only
//! A module with all that it needs, in load order.

use crate::Kernel;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files of the named modules and of what they depend on, dependencies first. Modules that are built in, or
/// that this kernel does not have, are left out.
///
/// # Errors
/// `modules.dep` cannot be read.
pub fn module_closure(kernel: &Kernel, names: &[&str]) -> Result<Vec<PathBuf>> {
    let file = kernel.modules.join("modules.dep");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(closure(&text, names).into_iter().map(|path| kernel.modules.join(path)).collect())
}

fn closure<'a>(dep: &'a str, names: &[&str]) -> Vec<&'a str> {
    let mut files = Vec::new();
    for name in names {
        let Some((file, needs)) =
            dep.lines().filter_map(|l| l.split_once(':')).find(|(f, _)| name_of(f) == plain(name))
        else {
            continue;
        };
        // modules.dep lists what must be loaded first last.
        for path in needs.split_whitespace().rev().chain([file]) {
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    files
}

/// The kernel takes dash and underscore for the same.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    plain(file.split('.').next().unwrap_or(file))
}

/// Whether the kernel has a driver: as a part of the image, or as a file to load.
pub(crate) fn is_there(kernel: &Kernel, name: &str) -> bool {
    let listed = |list: &str| {
        let text = fs::read_to_string(kernel.modules.join(list)).unwrap_or_default();
        let file = text.lines().filter_map(|l| l.split(':').next()).find(|file| name_of(file) == plain(name));
        file.map(str::to_string)
    };
    listed("modules.builtin").is_some()
        || listed("modules.dep").is_some_and(|file| kernel.modules.join(file).is_file())
}

/// A module's contents, decompressed.
///
/// # Errors
/// The file cannot be read, or is compressed in an unknown way.
pub fn read_module(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("cannot open module {}", path.display()))?;
    let mut bytes = Vec::new();
    let read = match path.extension().and_then(|e| e.to_str()) {
        Some("ko") => { file }.read_to_end(&mut bytes),
        Some("xz") => xz2::read::XzDecoder::new(file).read_to_end(&mut bytes),
        Some("gz") => flate2::read::GzDecoder::new(file).read_to_end(&mut bytes),
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(file)
            .map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?
            .read_to_end(&mut bytes),
        _ => {
            bail!("{} is compressed in a way that is not known here (known: xz, zstd, gzip)", path.display())
        }
    };
    read.with_context(|| format!("cannot read module {}", path.display()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/virt/lib/irqbypass.ko.xz:\n\
        kernel/arch/x86/kvm/kvm.ko.xz: kernel/virt/lib/irqbypass.ko.xz\n\
        kernel/arch/x86/kvm/kvm-amd.ko.xz: kernel/arch/x86/kvm/kvm.ko.xz kernel/virt/lib/irqbypass.ko.xz\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let files = closure(DEP, &["kvm", "kvm_amd", "no_such"]);
        let names: Vec<String> = files.iter().map(|f| name_of(f)).collect();
        assert_eq!(names, ["irqbypass", "kvm", "kvm_amd"]);
    }

    #[test]
    fn drivers_are_built_in_or_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("modules.dep"), "a/kvm-amd.ko.xz: a/kvm.ko.xz\na/gone.ko:\n").unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/arch/x86/kvm/kvm-intel.ko\n").unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/kvm-amd.ko.xz"), "").unwrap();
        let kernel = Kernel {
            release: "1".into(),
            image: "/x".into(),
            modules: dir.path().into(),
            config: None,
            origin: "a test".into(),
        };
        assert!(is_there(&kernel, "kvm_amd") && is_there(&kernel, "kvm_intel"), "a file, and built in");
        assert!(!is_there(&kernel, "gone"), "listed, but the file is not there");
        assert!(!is_there(&kernel, "vfio"));
        assert!(
            module_closure(&kernel, &["kvm-intel"]).unwrap().is_empty(),
            "nothing to load for a built-in"
        );
    }

    #[test]
    fn compressed_modules_are_read() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ko.xz");
        let mut encoder = xz2::write::XzEncoder::new(File::create(&path).unwrap(), 1);
        encoder.write_all(b"module").unwrap();
        encoder.finish().unwrap();
        assert_eq!(read_module(&path).unwrap(), b"module");
        let path = dir.path().join("a.ko.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        encoder.write_all(b"module").unwrap();
        encoder.finish().unwrap();
        assert_eq!(read_module(&path).unwrap(), b"module");
        let path = dir.path().join("a.ko.zst");
        fs::write(
            &path,
            ruzstd::encoding::compress_to_vec(&b"module"[..], ruzstd::encoding::CompressionLevel::Fastest),
        )
        .unwrap();
        assert_eq!(read_module(&path).unwrap(), b"module");
        assert!(read_module(Path::new("/x.ko")).is_err());
    }
}
