// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the scheduler's BPF sources and the model that they run on into one shared object, which the library loads
//! as often as it needs a host.

#[path = "src/compile.rs"]
mod compile;

use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let policy = Path::new("../../policy").canonicalize()?;
    let bpf = Path::new("../scheduler/src/bpf").canonicalize()?;
    let native = Path::new("native").canonicalize()?;
    for input in [&policy, &bpf, &native, &PathBuf::from("src/compile.rs")] {
        println!("cargo:rerun-if-changed={}", input.display());
    }
    // Unpacks scx's headers, as for BPF.
    scx_cargo::BpfBuilder::new()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let scx = out.join("scx_utils-bpf_h");
    compile::undefine_enums(&scx, &out)?;
    let libbpf = env::var("DEP_BPF_INCLUDE").context("libbpf-sys does not say where its headers are")?;
    let headers: Vec<PathBuf> =
        vec![out.clone(), scx.join("arch/x86"), scx.clone(), scx.join("bpf-compat"), libbpf.into()];
    let object = compile::Sources { native: &native, bpf: &bpf, policy: &policy, headers: &headers };
    object.compile(&out.join("model.so"), &[])?;
    // For those who compile changed sources.
    let list: Vec<String> = headers.iter().map(|dir| dir.display().to_string()).collect();
    println!("cargo:rustc-env=TUNNEL_HEADERS={}", list.join(":"));
    Ok(())
}
