// SPDX-License-Identifier: GPL-2.0-only
//! Files and folders of /run that others read.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces a file as a whole, for all to read, and makes its folder if need be.
///
/// # Errors
/// The folder cannot be written.
pub fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    make_dir(file.parent().unwrap_or(Path::new("/")))?;
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    fs::write(&fresh, content)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o644))?;
    fs::rename(&fresh, file)
}

/// Makes a folder that all may look into, QEMU's user among them, whatever umask this program was started with, and those
/// above it. One that is there stays as it is.
///
/// # Errors
/// The system's reason.
pub fn make_dir(dir: &Path) -> std::io::Result<()> {
    // A bare name has an empty parent.
    if dir.as_os_str().is_empty() || dir.exists() {
        return Ok(());
    }
    dir.parent().map_or(Ok(()), make_dir)?;
    match fs::create_dir(dir) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => Err(why),
        _ => fs::set_permissions(dir, Permissions::from_mode(0o755)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_for_all_to_read_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/below/undo.json");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace(&file, b"one").unwrap();
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o755, 0o644));
        assert_eq!(mode(&dir.path().join("run")), 0o755);
        assert!(make_dir(Path::new("")).is_ok());
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!((mode(&file), fs::read(&file).unwrap().as_slice()), (0o644, b"two".as_slice()));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
