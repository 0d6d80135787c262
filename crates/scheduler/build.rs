// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF scheduler, with the policies that it includes, and generates skeleton and bindings.

use anyhow::Result;
use std::env;
use std::path::Path;

fn main() -> Result<()> {
    let policy = Path::new("../../policy").canonicalize()?;
    println!("cargo:rerun-if-changed={}", policy.display());
    println!("cargo:rerun-if-changed=src/bpf");
    // SAFETY: a build script's main thread, before any other thread exists.
    unsafe { env::set_var("BPF_EXTRA_CFLAGS_POST_INCL", format!("-I{}", policy.display())) };
    scx_cargo::BpfBuilder::new()?
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()?;
    Ok(())
}
