// SPDX-License-Identifier: GPL-2.0-only
//! Binds the very headers that BPF includes: bindgen writes a C file that gives each static inline function a
//! symbol, and cc compiles it.

use anyhow::Result;
use std::env;
use std::path::PathBuf;

const POLICY: &str = "../../policy";

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed={POLICY}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let wrappers = out.join("wrappers.c");
    bindgen::Builder::default()
        .header("all.h")
        .clang_arg(format!("-I{POLICY}"))
        .allowlist_item("(ovb|OVB)_.*")
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .derive_default(true)
        .derive_partialeq(true)
        .layout_tests(false)
        .generate()?
        .write_to_file(out.join("policy.rs"))?;
    cc::Build::new().file(&wrappers).include(".").include(POLICY).std("gnu11").compile("overbook_policy");
    Ok(())
}
