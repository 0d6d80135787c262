// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the host model and generates its skeleton.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const SOURCE: &str = "src/bpf/thief.bpf.c";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let skeleton = PathBuf::from(env::var("OUT_DIR")?).join("thief.skel.rs");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang(env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into()))
        .clang_args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-I/usr/include/x86_64-linux-gnu"])
        .build_and_generate(&skeleton)?;
    Ok(())
}
