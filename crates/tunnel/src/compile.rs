// SPDX-License-Identifier: GPL-2.0-only
//! How the scheduler's sources become native code: clang, with the model's headers before BPF's.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where everything lies.
pub struct Sources<'a> {
    /// The model, in C.
    pub native: &'a Path,
    /// The scheduler: the folder of `main.bpf.c`.
    pub bpf: &'a Path,
    /// The decisions that it includes.
    pub policy: &'a Path,
    /// Headers of scx and libbpf.
    pub headers: &'a [PathBuf],
}

/// The model's files. The last one includes the scheduler.
const FILES: [&str; 14] = [
    "core", "change", "task", "ext", "dsq", "idle", "maps", "bpf", "cpumask", "group", "heap", "kvm",
    "costs", "glue",
];

impl Sources<'_> {
    /// Makes the shared object, with further flags for the scheduler's own sources.
    ///
    /// # Errors
    /// clang is missing, or refuses.
    pub fn compile(&self, object: &Path, flags: &[&str]) -> Result<()> {
        self.compile_with(object, flags, None)
    }

    /// The same, with the model's own files as they were compiled beside another object. Only the scheduler is compiled.
    ///
    /// # Errors
    /// clang is missing, or refuses.
    pub fn compile_with(&self, object: &Path, flags: &[&str], model: Option<&Path>) -> Result<()> {
        let parts = object.with_extension("parts");
        fs::create_dir_all(&parts).with_context(|| format!("cannot make {}", parts.display()))?;
        let mut linked = Vec::new();
        for file in FILES {
            if let Some(model) = model.filter(|_| file != "glue") {
                linked.push(model.with_extension("parts").join(format!("{file}.o")));
                continue;
            }
            let part = parts.join(format!("{file}.o"));
            let mut command = self.clang(file == "glue");
            command.arg("-c").args(if file == "glue" { flags } else { &[] });
            command.arg(self.native.join(format!("{file}.c"))).arg("-o").arg(&part);
            run(&mut command)?;
            linked.push(part);
        }
        let mut link = Command::new(clang());
        run(link.args(["-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic"]).args(&linked).arg("-o").arg(object))
    }

    /// clang with all flags but what to do and with which file, for the model or for the scheduler.
    pub fn clang(&self, scheduler: bool) -> Command {
        let mut command = Command::new(clang());
        command.args(["-O2", "-g1", "-fPIC", "-fno-builtin-printf", "-Wall", "-Wno-unused-function"]);
        command.args(["-Wno-missing-declarations", "-DBPF_NO_PRESERVE_ACCESS_INDEX"]);
        if scheduler {
            // BPF's own idioms are no mistakes of ours.
            command.args(["-w", "-D__TARGET_ARCH_x86", "-D__SCX_TARGET_ARCH_x86", "-include", "core.h"]);
        }
        let folders = [self.native.to_path_buf(), self.native.join("include"), self.bpf.into()];
        for folder in folders.iter().chain(self.headers).chain([&self.policy.to_path_buf()]) {
            command.arg(format!("-I{}", folder.display()));
        }
        command
    }
}

fn clang() -> String {
    env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into())
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}: is it installed?"))?;
    if !output.status.success() {
        bail!("{program} refuses: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// scx makes every constant of sched_ext a variable that the loader fills in. Natively the kernel's own constants are at
/// hand: this header undoes the former's macros.
///
/// # Errors
/// scx's header cannot be read, or ours not be written.
pub fn undefine_enums(scx: &Path, out: &Path) -> Result<()> {
    let header = scx.join("scx/enums.autogen.bpf.h");
    let text = fs::read_to_string(&header).with_context(|| format!("cannot read {}", header.display()))?;
    let undo: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.split_whitespace().next())
        .map(|name| format!("#undef {name}\n"))
        .collect();
    fs::write(out.join("enums-undef.h"), undo)?;
    Ok(())
}
