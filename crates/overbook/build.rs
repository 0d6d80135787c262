// SPDX-License-Identifier: GPL-2.0-only
//! The build id: version, time and commit, so that a report tells what made it and packages have an order.

#[path = "build/version.rs"]
mod version;

use std::env;
use std::path::Path;

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let version = version::of(&root, &env::var("CARGO_PKG_VERSION").unwrap_or_default());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/version.rs");
    for file in &version.watch {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    if let Some(reason) = version.fixed {
        println!(
            "cargo:warning=the version is {}, which does not grow from commit to commit: this tree is neither a git checkout \
             ({reason}) nor an archive made by `git archive`",
            version.text
        );
    }
    println!("cargo:rustc-env=OVERBOOK_BUILD={}", version.text);
}
