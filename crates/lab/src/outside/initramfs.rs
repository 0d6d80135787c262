// SPDX-License-Identifier: GPL-2.0-only
//! Packs the current program, its libraries, the kernel's modules and a job into an initramfs.

use crate::outside::packages::{MERGED, Packages};
use crate::protocol::{
    FIRMWARE_DIR, INNER_INITRAMFS, INNER_KERNEL, InnerGuest, JOB_FILE, Job, MODULE_DIR, PACKAGES_DIR, Task,
};
use crate::scenario::{LinuxSpec, program};
use anyhow::{Context, Result, bail};
use cpio::newc;
use overbook_kernels::emulator::{FIRMWARE as FIRMWARE_FROM, PROGRAM};
use overbook_kernels::{Cache, Emulator, Kernel, rivals, roots};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Modules that make KVM work on either vendor, in case they are not built in.
const MODULES: [&str; 3] = ["kvm", "kvm_amd", "kvm_intel"];

/// And those that connect a Linux guest to its port; the rest is built into Debian's kernels.
const INNER_MODULES: [&str; 2] = ["virtio_mmio", "virtio_console"];

/// What QEMU's microvm reads, and where Debian has it.
const FIRMWARE: [&str; 4] = ["bios-microvm.bin", "qboot.rom", "linuxboot_dma.bin", "pvh.bin"];

const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;

/// Writes the initramfs of `job` for `kernel` to `path`. The same input gives the same bytes. `say` hears of packages that
/// are fetched.
///
/// # Errors
/// A library of this program is missing, a module cannot be read, or the disk is full.
pub fn write(
    path: &Path,
    kernel: &Kernel,
    emulator: &Emulator,
    job: &Job,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut tree = Tree::with_agent(kernel, job)?;
    if let Task::Scenario(scenario) = &job.task {
        if let Some(spec) = &scenario.linux {
            let root = roots::make(&Cache::open_default()?, &spec.packages, say)?;
            tree.linux_guests(kernel, emulator, job, (spec, &root), scenario.guest_weight())?;
        }
        for name in scenario.rivals() {
            let path = rivals::find(&Cache::open_default()?, name)?;
            tree.program(program(name), &path)?;
        }
    }
    tree.modules(kernel, &MODULES)?;
    tree.save(path).with_context(|| format!("cannot write {}: is the disk full?", path.display()))
}

/// Shared libraries of a program in the tree of a root, each under the path where the dynamic loader will look.
pub(crate) fn libraries(root: &Path, program: &Path) -> Result<Vec<(String, PathBuf)>> {
    // Where Debian has them: the analyzer takes what the computer's own settings say for any root.
    let paths = vec![root.join("usr/lib/x86_64-linux-gnu"), root.join("usr/lib")];
    let analyzer = lddtree::DependencyAnalyzer::new(root.into()).library_paths(paths);
    let found = analyzer
        .analyze(program)
        .with_context(|| format!("cannot read the libraries of {}", program.display()))?;
    let mut files = Vec::new();
    if let Some(interpreter) = &found.interpreter {
        let path = interpreter.trim_start_matches('/');
        files.push((path.to_string(), root.join(path)));
    }
    for (name, library) in &found.libraries {
        match &library.realpath {
            _ if Some(name) == found.interpreter.as_ref() => {}
            Some(path) if path.starts_with(root) => {
                files.push((format!("lib/{}", name.rsplit('/').next().unwrap_or(name)), path.clone()))
            }
            _ => bail!("library {name}, which {} needs, is not installed", program.display()),
        }
    }
    Ok(files)
}

/// Drops a module's signature: checking it takes an emulated CPU longer than the whole rest of the boot. No
/// Debian kernel insists on one unless it is locked down.
fn without_signature(mut module: Vec<u8>) -> Vec<u8> {
    const MARK: &[u8] = b"~Module signature appended~\n";
    // struct module_signature: eight bytes of identifiers and padding, then the signature's length.
    const INFO: usize = 12;
    if let Some(rest) = module.strip_suffix(MARK) {
        let signature = rest.last_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length) as usize);
        let end = rest.len().saturating_sub(INFO + signature);
        module.truncate(end);
    }
    module
}

/// A file tree in memory. Sorted, so that parents come before children.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<String, (u32, Vec<u8>)>,
}

impl Tree {
    /// A tree with this program as its init, and a job.
    fn with_agent(kernel: &Kernel, job: &Job) -> Result<Tree> {
        let mut tree = Tree::default();
        let program = std::env::current_exe().context("cannot find the running program")?;
        tree.program("overbook", &program)?;
        tree.entry("init", LINK, b"bin/overbook".to_vec());
        if let Some(config) = &kernel.config {
            // BPF programs may depend on the kernel's configuration; this is where loaders look for it.
            tree.file(&format!("boot/config-{}", kernel.release), fs::read(config)?);
        }
        tree.file(JOB_FILE, serde_json::to_vec(job)?);
        for mount in ["proc", "sys", "dev", "run", "tmp"] {
            tree.entry(mount, DIRECTORY, Vec::new());
        }
        Ok(tree)
    }

    /// Modules with all that they need, by names in the order of loading.
    fn modules(&mut self, kernel: &Kernel, names: &[&str]) -> Result<()> {
        for (nth, module) in overbook_kernels::module_closure(kernel, names)?.iter().enumerate() {
            let name = module.file_name().and_then(|n| n.to_str()).context("a module without a name")?;
            let name = name.split('.').next().unwrap_or(name);
            let content = without_signature(overbook_kernels::read_module(module)?);
            self.file(&format!("{MODULE_DIR}/{nth:02}-{name}.ko"), content);
        }
        Ok(())
    }

    /// What a host needs to run Linux guests: QEMU, its firmware, and the guests' own kernel and tree.
    fn linux_guests(
        &mut self,
        kernel: &Kernel,
        emulator: &Emulator,
        job: &Job,
        (spec, root): (&LinuxSpec, &Path),
        weight: u32,
    ) -> Result<()> {
        let inner = InnerGuest {
            command: spec.command.clone(),
            prepare: spec.prepare.clone(),
            figure: spec.figure.clone(),
            weight,
        };
        let mut guest = Tree::with_agent(kernel, &Job { task: Task::Inner(inner), ..job.clone() })?;
        guest.packages(&Packages::new(root), spec)?;
        guest.modules(kernel, &INNER_MODULES)?;
        let mut packed = Vec::new();
        guest.write(&mut packed)?;
        self.file(INNER_INITRAMFS, packed);
        self.file(INNER_KERNEL, fs::read(&kernel.image)?);
        self.program(PROGRAM, &emulator.program)?;
        for name in FIRMWARE {
            let found = FIRMWARE_FROM.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
            let path = found.with_context(|| format!("QEMU's {name} is not installed"))?;
            self.file(&format!("{FIRMWARE_DIR}/{name}"), fs::read(path)?);
        }
        Ok(())
    }

    /// What Linux guests run, in a folder of its own.
    fn packages(&mut self, packages: &Packages, spec: &LinuxSpec) -> Result<()> {
        let mut all = packages.program("sh")?;
        for program in [&spec.command, &spec.prepare].into_iter().filter_map(|words| words.first()) {
            all.extend(packages.program(program)?);
        }
        for path in &spec.files {
            all.extend(packages.files(path)?);
        }
        for (path, file) in all {
            let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            self.file(&format!("{PACKAGES_DIR}/{path}"), content);
        }
        for link in MERGED {
            self.entry(&format!("{PACKAGES_DIR}/{link}"), LINK, format!("usr/{link}").into_bytes());
        }
        for mount in ["proc", "sys", "dev", "run", "tmp"] {
            self.entry(&format!("{PACKAGES_DIR}/{mount}"), DIRECTORY, Vec::new());
        }
        Ok(())
    }

    /// A program and its libraries.
    fn program(&mut self, name: &str, path: &Path) -> Result<()> {
        self.file(
            &format!("bin/{name}"),
            fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        );
        for (name, library) in libraries(Path::new("/"), path)? {
            let content = fs::read(&library);
            self.file(&name, content.with_context(|| format!("cannot read {}", library.display()))?);
        }
        Ok(())
    }

    fn file(&mut self, path: &str, content: Vec<u8>) {
        self.entry(path, FILE, content);
    }

    fn entry(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        for (slash, _) in path.match_indices('/') {
            self.entries.entry(path[..slash].into()).or_insert((DIRECTORY, Vec::new()));
        }
        self.entries.insert(path.into(), (mode, content));
    }

    fn save(&self, path: &Path) -> Result<()> {
        let mut out = std::io::BufWriter::new(fs::File::create(path)?);
        self.write(&mut out)?;
        Ok(out.flush()?)
    }

    fn write(&self, mut out: &mut impl Write) -> Result<()> {
        for (inode, (name, (mode, content))) in self.entries.iter().enumerate() {
            let size = u32::try_from(content.len()).with_context(|| format!("{name} is too large"))?;
            let header = newc::Builder::new(name).ino(inode as u32 + 1).mode(*mode).nlink(1);
            let mut file = header.write(&mut out, size);
            file.write_all(content)?;
            file.finish()?;
        }
        newc::trailer(&mut out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_parents_first_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.cpio");
        let mut tree = Tree::default();
        tree.file("lib/a/b.so", b"xyz".to_vec());
        tree.entry("init", LINK, b"bin/overbook".to_vec());
        tree.save(&file).unwrap();
        let mut input = fs::File::open(&file).unwrap();
        let mut names = Vec::new();
        loop {
            let reader = newc::Reader::new(input).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_string());
            input = reader.finish().unwrap();
        }
        assert_eq!(names, ["init", "lib", "lib/a", "lib/a/b.so"]);
    }

    #[test]
    fn signatures_are_dropped_and_nothing_else() {
        let mut signed = b"ELF".to_vec();
        signed.extend([9; 5]);
        signed.extend([0; 8]);
        signed.extend(5u32.to_be_bytes());
        signed.extend(b"~Module signature appended~\n");
        assert_eq!(without_signature(signed), b"ELF");
        assert_eq!(without_signature(b"ELF".to_vec()), b"ELF");
    }
}
