// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's headers include what they use.

use overbook_tunnel::compile::Sources;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_header_of_the_scheduler_stands_alone() {
    let here = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let (native, bpf, policy) = (here("native"), here("../scheduler/src/bpf"), here("../../policy"));
    let headers: Vec<PathBuf> = env!("TUNNEL_HEADERS").split(':').map(PathBuf::from).collect();
    let sources = Sources { native: &native, bpf: &bpf, policy: &policy, headers: &headers };
    let scratch = tempfile::tempdir().unwrap();
    let names = fs::read_dir(&bpf).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".bpf.h")).collect();
    assert!(names.len() > 15, "{names:?}");
    let alone = scratch.path().join("alone.c");
    for name in names {
        fs::write(&alone, format!("#include \"{name}\"\n")).unwrap();
        let output = sources.clang(true).arg("-fsyntax-only").arg(&alone).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
