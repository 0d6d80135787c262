// SPDX-License-Identifier: GPL-2.0-only
//! The headers compile where they must: BPF, and a 32-bit target that has no 64-bit division to call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn headers() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy");
    let folders = [dir.clone(), dir.join("published")];
    let mut files: Vec<PathBuf> =
        folders.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "h"));
    files.sort();
    assert!(files.len() >= 15);
    files
}

/// Compiles one header with all its functions made real, and returns the undefined symbols.
fn undefined(header: &Path, target: &[&str]) -> Vec<String> {
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    let object = dir.path().join("x.o");
    // `static inline` functions that nobody calls would be dropped before they are checked.
    fs::write(&source, format!("#define inline __attribute__((used))\n#include \"{}\"\n", header.display()))
        .unwrap();
    let output = Command::new(clang)
        .args(target)
        .args([
            "-std=gnu11",
            "-O2",
            "-ffreestanding",
            "-nostdinc",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Werror",
            "-c",
        ])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang runs: `make setup` installs it");
    assert!(output.status.success(), "{}: {}", header.display(), String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(&object).unwrap();
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols()
        .filter(|s| s.is_undefined())
        .filter_map(|s| s.name().ok().map(str::to_string))
        .filter(|n| !n.is_empty())
        .collect()
}

#[test]
fn headers_stand_alone_on_bpf() {
    for header in headers() {
        assert_eq!(
            undefined(&header, &["--target=bpf", "-mcpu=v3"]),
            Vec::<String>::new(),
            "{}",
            header.display()
        );
    }
}

#[test]
fn headers_need_no_division_on_32_bits() {
    for header in headers() {
        assert_eq!(
            undefined(&header, &["--target=i386-linux-gnu", "-fno-pic"]),
            Vec::<String>::new(),
            "{}",
            header.display()
        );
    }
}
