// SPDX-License-Identifier: GPL-2.0-only
//! The build id: version and commit, so that a report tells what made it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let describe = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output();
    let commit = describe
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    let id = commit.map_or(version.clone(), |commit| format!("{version}-g{commit}"));
    println!("cargo:rustc-env=OVERBOOK_BUILD={id}");
}
