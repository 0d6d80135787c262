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
        _ => bail!("{} is compressed in a way that is not known here", path.display()),
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
    fn compressed_modules_are_read() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ko.xz");
        let mut encoder = xz2::write::XzEncoder::new(File::create(&path).unwrap(), 1);
        encoder.write_all(b"module").unwrap();
        encoder.finish().unwrap();
        assert_eq!(read_module(&path).unwrap(), b"module");
        assert!(read_module(Path::new("/x.ko")).is_err());
    }
}
