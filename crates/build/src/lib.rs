// SPDX-License-Identifier: GPL-2.0-only
//! What several build scripts of this workspace need.

use std::env;
use std::path::Path;

/// Tells bindgen where libclang is, unless `LIBCLANG_PATH` says so already. Debian keeps it in a folder per LLVM
/// version, which clang-sys finds only through llvm-config.
///
/// # Safety
/// Sets an environment variable: call it from a build script's main thread, before any other thread exists.
pub unsafe fn find_libclang() {
    if env::var_os("LIBCLANG_PATH").is_some() {
        return;
    }
    let newest = (14..30).rev().map(|v| format!("/usr/lib/llvm-{v}/lib")).find(|d| Path::new(d).is_dir());
    if let Some(dir) = newest {
        // SAFETY: the caller's promise.
        unsafe { env::set_var("LIBCLANG_PATH", dir) };
    }
}
