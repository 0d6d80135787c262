// SPDX-License-Identifier: GPL-2.0-only
//! Reports as files.

use crate::schema::{Report, SCHEMA};
use anyhow::{Context, Result, bail};
use std::fs::{Metadata, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Writes text whole or not at all; what is no file, as `/dev/stdout` or a pipe, is written to and not replaced. A new file
/// is for all to read; one that was there stays for whom it was.
///
/// # Errors
/// The folder does not exist, the disk is full, or the kernel does not let this user follow a link.
pub fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let Place { path, dir, there } = place(path)?;
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes());
        }
        let mut file = temporary(&dir)?;
        file.write_all(text.as_bytes())?;
        if let Some(there) = &there {
            // Only root may give files away; who else writes another's file keeps it.
            let _ = fchown(file.as_file(), Some(there.uid()), Some(there.gid()));
        }
        let mode = there.map_or(Permissions::from_mode(0o644), |there| there.permissions());
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Where a file is to be written, and what is there.
struct Place {
    path: PathBuf,
    dir: PathBuf,
    there: Option<Metadata>,
}

/// What a link leads to is written, and the link stays. Not if the kernel forbids to follow it, as one that another user has
/// planted in /tmp: that is found by following it, and not by reading it as `canonicalize` does.
fn place(path: &Path) -> std::io::Result<Place> {
    let there = match std::fs::metadata(path) {
        Ok(there) => Some(there),
        Err(why) if why.kind() == ErrorKind::NotFound => None,
        Err(why) => return Err(why),
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(Place { dir: dir.into(), path, there })
}

/// A temporary file in a folder. Its name says nothing to anybody, so it is in no message.
fn temporary(dir: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    tempfile::NamedTempFile::new_in(dir).map_err(|why| match why.kind() {
        ErrorKind::NotFound => std::io::Error::other(format!("there is no folder {}", dir.display())),
        kind => kind.into(),
    })
}

/// Says before long work that [`write_atomically`] would fail at its end.
///
/// # Errors
/// The folder does not exist or is not writable, or the path is a folder.
pub fn check_writable(path: &Path) -> Result<()> {
    let tried = place(path).and_then(|place| match place.there {
        Some(there) if there.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Some(there) if !there.is_file() => Ok(()),
        _ => temporary(&place.dir).map(drop),
    });
    tried.with_context(|| format!("cannot write {}", path.display()))
}

/// Largest file that is taken for text of ours; devices never end.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file that may be anything that a user has named.
///
/// # Errors
/// The system's reason; or it is larger than any file of ours.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    if text.len() as u64 == MOST_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Writes a report.
///
/// # Errors
/// As [`write_atomically`].
pub fn write(path: &Path, report: &Report) -> Result<()> {
    write_atomically(path, &(serde_json::to_string_pretty(report)? + "\n"))
}

/// Reads a report.
///
/// # Errors
/// One sentence: no such file, not a report, or one of another schema.
pub fn read(path: &Path) -> Result<Report> {
    let name = path.display();
    let text = read_text(path).with_context(|| format!("cannot read report {name}"))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{name} is no JSON file"))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            bail!("{name} is a report of schema {schema}, and this program reads schema {SCHEMA}")
        }
        None => bail!("{name} is JSON, but no report of the lab"),
    }
    serde_json::from_value(value).with_context(|| format!("{name} is a damaged report"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let report = crate::summary::sample();
        write(&path, &report).unwrap();
        let again = read(&path).unwrap();
        let same = serde_json::to_value(&again).unwrap() == serde_json::to_value(&report).unwrap();
        assert!(same, "the report read is not the report written");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        let dir = tempfile::tempdir().unwrap();
        // A name of its own for the device, which the test may lose.
        let path = dir.path().join("full");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let error = format!("{:#}", write_atomically(&path, "text").unwrap_err());
        assert!(error.contains("cannot write") && error.contains("No space left"), "{error}");
        assert!(std::fs::metadata(&path).unwrap().file_type().is_char_device());
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn who_may_read_a_file_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_atomically(&path, "one").unwrap();
        assert_eq!(mode(), 0o644);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_atomically(&link, "two").unwrap();
        assert_eq!((mode(), std::fs::read_to_string(&path).unwrap().as_str()), (0o600, "two"));
        assert!(link.is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_said_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_writable(&dir.path().join("new.json")).is_ok());
        assert!(check_writable(Path::new("/dev/stdout")).is_ok());
        for (path, why) in [
            (dir.path().to_path_buf(), "is a directory"),
            (dir.path().join("no/new.json"), "there is no folder"),
        ] {
            let error = format!("{:#}", check_writable(&path).unwrap_err());
            assert!(error.contains("cannot write") && error.contains(why), "{error}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn other_files_are_refused_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert!(read(&path).unwrap_err().to_string().contains("cannot read report"));
        for (text, expected) in [("<", "no JSON"), ("{}", "no report"), (r#"{"schema":99}"#, "schema 99")] {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn every_field_is_documented() {
        fn fields(value: &serde_json::Value, found: &mut Vec<String>) {
            match value {
                serde_json::Value::Object(map) => {
                    for (key, value) in map {
                        found.push(key.clone());
                        // Keys of these are data.
                        if !["exits", "knobs", "extra"].contains(&key.as_str()) {
                            fields(value, found);
                        }
                    }
                }
                serde_json::Value::Array(list) => list.iter().for_each(|v| fields(v, found)),
                _ => {}
            }
        }
        let document = include_str!("../../../docs/report-schema.md");
        let mut report = crate::summary::sample();
        report.failure = Some(crate::schema::Failure::default());
        report.bounds[0].points.push(crate::schema::BoundPoint::default());
        let mut found = Vec::new();
        fields(&serde_json::to_value(&report).unwrap(), &mut found);
        for field in found {
            assert!(
                document.contains(&format!("`{field}`")),
                "docs/report-schema.md does not mention `{field}`"
            );
        }
    }
}
