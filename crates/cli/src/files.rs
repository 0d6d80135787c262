// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read.

use std::fs;
use std::path::Path;

/// Replaces a file as a whole, and makes its folder if need be.
///
/// # Errors
/// The folder cannot be written.
pub fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let fresh = file.with_extension("new");
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    fs::write(&fresh, content)?;
    fs::rename(&fresh, file)
}
