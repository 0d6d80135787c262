// SPDX-License-Identifier: GPL-2.0-only
//! Programs and files of a tree of Debian packages, with the libraries that they need.

use crate::outside::initramfs::libraries;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Where programs are.
const PATHS: [&str; 2] = ["usr/bin", "usr/sbin"];

/// What begins so stands below /usr, in all of Debian's packages.
pub const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Symbolic links that lead on to each other.
const LINKS: usize = 16;

/// A tree of packages.
pub struct Packages<'a> {
    root: &'a Path,
}

/// A path from the tree's root, and the file that stands there.
type Entry = (String, PathBuf);

impl<'a> Packages<'a> {
    /// The tree in a folder.
    pub fn new(root: &'a Path) -> Packages<'a> {
        Packages { root }
    }

    /// A program by its name, or by a path from the root.
    ///
    /// # Errors
    /// No package has it, or a library that it needs.
    pub fn program(&self, name: &str) -> Result<Vec<Entry>> {
        if name.starts_with('/') {
            return self.files(Path::new(name));
        }
        let found = PATHS.iter().map(|dir| format!("{dir}/{name}"));
        let path = found.into_iter().find(|path| self.root.join(path).symlink_metadata().is_ok());
        let path =
            path.with_context(|| format!("no package has the program {name}: name one in `packages`"))?;
        self.with_libraries(path)
    }

    /// A file or a folder with all that is in it.
    ///
    /// # Errors
    /// As for [`Packages::program`].
    pub fn files(&self, path: &Path) -> Result<Vec<Entry>> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let missing = || format!("no package has /{}: name one in `packages`", path.display());
        let itself = self.root.join(path).symlink_metadata().with_context(missing)?;
        if !itself.is_dir() {
            return self.with_libraries(path.to_string_lossy().into_owned());
        }
        let mut all = Vec::new();
        for entry in WalkDir::new(self.root.join(path)) {
            let entry = entry.with_context(missing)?;
            let name = entry.path().strip_prefix(self.root).unwrap_or(entry.path()).to_string_lossy();
            // Links to folders, and those that lead out of the packages, are not followed.
            if !entry.file_type().is_dir() && self.resolve(&name).is_ok_and(|file| file.is_file()) {
                all.extend(self.with_libraries(name.into_owned())?);
            }
        }
        Ok(all)
    }

    /// A file under the path where it was asked for, even if that is a link.
    fn with_libraries(&self, path: String) -> Result<Vec<Entry>> {
        let file = self.resolve(&path)?;
        let mut all = Vec::new();
        if is_linked(&file) {
            for (name, library) in libraries(self.root, &file)? {
                let merged = MERGED.iter().any(|dir| name.split('/').next() == Some(dir));
                all.push((if merged { format!("usr/{name}") } else { name }, library));
            }
        }
        all.push((path, file));
        Ok(all)
    }

    /// The file at the end of symbolic links, which are the tree's own.
    fn resolve(&self, path: &str) -> Result<PathBuf> {
        let mut file = self.root.join(path);
        for _ in 0..LINKS {
            let Ok(to) = fs::read_link(&file) else { return Ok(file) };
            file = match to.strip_prefix("/") {
                Ok(absolute) => self.root.join(absolute),
                Err(_) => file.parent().unwrap_or(self.root).join(to),
            };
        }
        bail!("{path} is a link to itself")
    }
}

/// Whether a file is a program or a library, for the dynamic loader.
fn is_linked(file: &Path) -> bool {
    const EXECUTABLE: u8 = 2;
    const SHARED: u8 = 3;
    let mut head = [0; 18];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF") && [EXECUTABLE, SHARED].contains(&head[16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_the_trees_own() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["usr/bin", "usr/share/data"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let at = |path: &str| dir.path().join(path);
        fs::write(at("usr/bin/real"), "#!/bin/sh\n").unwrap();
        fs::write(at("usr/share/data/one"), "1").unwrap();
        symlink("/usr/bin/real", at("usr/bin/absolute")).unwrap();
        symlink("absolute", at("usr/bin/relative")).unwrap();
        symlink("loop", at("usr/bin/loop")).unwrap();
        symlink("/nowhere", at("usr/share/data/broken")).unwrap();
        let packages = Packages::new(dir.path());
        for name in ["real", "relative", "/usr/bin/absolute"] {
            let found = packages.program(name).unwrap();
            let path = format!("usr/bin/{}", name.rsplit('/').next().unwrap());
            assert_eq!(found, [(path, at("usr/bin/real"))]);
        }
        let found = packages.files(Path::new("/usr/share/data")).unwrap();
        assert_eq!(found, [("usr/share/data/one".to_string(), at("usr/share/data/one"))]);
        assert!(packages.program("loop").is_err());
        for missing in ["nonsense", "/usr/share/nonsense"] {
            assert!(packages.program(missing).unwrap_err().to_string().contains("no package has"));
        }
    }

    #[test]
    fn own_libraries_are_found() {
        let own = libraries(Path::new("/"), &std::env::current_exe().unwrap()).unwrap();
        assert!(own.iter().any(|(name, _)| name.starts_with("lib/libc.so")), "{own:?}");
        assert!(own.iter().all(|(_, path)| path.exists()));
    }
}
