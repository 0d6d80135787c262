// SPDX-License-Identifier: GPL-2.0-only
//! The search for a kernel, with an archive that exists only here: programs named as apt's come first on the path.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use tempfile::TempDir;

/// What `apt-get` answers to `indextargets`.
const MIRROR: &str = "http://archive.example|bookworm|Debian|Debian";

/// Two kernels in three parts: of the newer one the modules are gone.
const IMAGES: &str = "\
Package: linux-image-7.9.2-cloud-amd64
Version: 7.9.2-1
Depends: linux-base-7.9.2-cloud-amd64 (= 7.9.2-1), linux-binary-7.9.2-cloud-amd64 (= 7.9.2-1), linux-modules-7.9.2-cloud-amd64 (= 7.9.2-1)
Size: 1

Package: linux-image-7.8.1-cloud-amd64
Version: 7.8.1-1
Depends: linux-base-7.8.1-cloud-amd64 (= 7.8.1-1), linux-binary-7.8.1-cloud-amd64 (= 7.8.1-1), linux-modules-7.8.1-cloud-amd64 (= 7.8.1-1)
Size: 1
";
const PARTS: &str = "\
Package: linux-binary-7.9.2-cloud-amd64
Version: 7.9.2-1
Size: 1

Package: linux-binary-7.8.1-cloud-amd64
Version: 7.8.1-1
Size: 1

Package: linux-modules-7.8.1-cloud-amd64
Version: 7.8.1-1
Size: 1
";

/// An archive: what `apt-get update` and `apt-get download` do, as a shell script.
struct Archive(TempDir);

impl Archive {
    fn new(update: &str, download: &str) -> Archive {
        let dir = TempDir::new().unwrap();
        let program = |name: &str, body: String| {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        for (name, text) in [("images", IMAGES), ("parts", PARTS)] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        program(
            "apt-get",
            format!(
                "case \"$*\" in *indextargets*) echo '{MIRROR}' ;; *\\ update\\ *) {update} ;; *download*) {download} ;; esac"
            ),
        );
        let here = dir.path().display();
        program(
            "apt-cache",
            format!(
                "case \"$*\" in *pkgnames*) sed -n 's/^Package: //p' {here}/images ;; *=*-binary-*) cat {here}/parts ;; \
                 *linux-binary*) cat {here}/parts ;; *) cat {here}/images ;; esac"
            ),
        );
        Archive(dir)
    }

    /// `overbook lab kernels` with this archive and an empty cache.
    fn kernels(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
        command.args(["lab", "kernels"]).args(arguments);
        command.env("PATH", path).env("OVERBOOK_CACHE", self.0.path().join("cache")).output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The table, without what made it fit.
fn table(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

const EXPIRED: &str = "E: Release file for http://archive.example/dists/sid/InRelease is expired (invalid since 16d). Updates for this repository will not be applied.";

#[test]
fn an_expired_list_is_used_and_said_to_be() {
    let update =
        format!("case \"$*\" in *Check-Valid-Until=false*) ;; *) echo '{EXPIRED}' >&2; exit 100 ;; esac");
    let output = Archive::new(&update, "exit 1").kernels(&[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("package list of Debian sid has expired, and is used all the same"));
    let table = table(&output);
    assert!(table.contains("7.8.1-cloud-amd64"), "{table}");
    assert!(table.contains("no longer has linux-modules-7.9.2-cloud-amd64, a part of it"), "{table}");
}

#[test]
fn lists_that_cannot_be_trusted_are_not_used() {
    let output = Archive::new("echo 'E: The repository is not signed.' >&2; exit 100", "exit 1").kernels(&[]);
    assert!(said(&output).contains("package lists cannot be fetched"), "{}", said(&output));
    assert!(!table(&output).contains("7.8.1"));
}

#[test]
fn a_search_says_what_it_does_and_why_it_found_nothing() {
    let archive = Archive::new("true", "echo 'E: Failed to fetch: 404 Not Found' >&2; exit 100");
    let output = archive.kernels(&["--fetch", "newest"]);
    assert!(!output.status.success());
    let said = said(&output);
    for word in [
        "looking at what Debian has",
        "fetching the package list of Debian sid",
        "fetching kernel 7.8.1-cloud-amd64 from Debian",
        "overbook: no suitable kernel",
        "linux-modules-7.9.2-cloud-amd64",
        "404 Not Found",
    ] {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
    assert!(!said.contains("fetching kernel 7.9.2"), "it cannot be whole: {said}");
}
