// SPDX-License-Identifier: GPL-2.0-only
//! Builds the micro-guest (freestanding C, one static ELF) and the Rust view of its ABI header.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: [&str; 2] = ["guest/guest.c", "guest/boot.S"];

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=guest");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    build_guest(&out.join("guest.elf"))?;
    bind_abi(&out.join("abi.rs"))
}

fn build_guest(elf: &Path) -> Result<()> {
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let status = Command::new(&clang)
        .args(["--target=x86_64-linux-gnu", "-std=gnu23", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffreestanding", "-fno-pic", "-fno-stack-protector", "-mno-red-zone"])
        .args(["-mgeneral-regs-only", "-nostdlib", "-static"])
        .args(["-Wl,-T,guest/link.ld", "-Wl,--build-id=none", "-Wl,--no-warn-rwx-segments"])
        .args(SOURCES)
        .arg("-o")
        .arg(elf)
        .status()
        .with_context(|| {
            format!("cannot run {clang}: install it with `make setup`, or name one in BPF_CLANG")
        })?;
    if !status.success() {
        bail!("{clang} could not build the micro-guest");
    }
    Ok(())
}

fn bind_abi(file: &Path) -> Result<()> {
    let text = bindgen::Builder::default()
        .header("guest/abi.h")
        .clang_arg("-std=gnu23")
        .allowlist_item("(ob|OB)_.*")
        .derive_default(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .layout_tests(false)
        .generate()?
        .to_string();
    fs::write(file, text)?;
    Ok(())
}
