// SPDX-License-Identifier: GPL-2.0-only
//! The version grows with every commit, as dpkg orders versions, and is told wherever the tree comes from.

#[path = "../build/version.rs"]
mod version;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const BASE: &str = "0.1.0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs git in a folder, undisturbed by this user's settings.
fn git(folder: &Path, arguments: &[&str], seconds: u64) {
    let time = format!("@{seconds} +0000");
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .envs([("GIT_AUTHOR_DATE", &time), ("GIT_COMMITTER_DATE", &time)])
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .output()
        .expect("git is there: tools/setup installs it");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn commit(folder: &Path, seconds: u64) -> String {
    git(folder, &["commit", "-q", "--allow-empty", "-m", "x"], seconds);
    version::of(folder, BASE).text
}

/// A repository with this one's stamp, and its first version.
fn repository() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("packaging")).unwrap();
    for file in [".gitattributes", version::STAMP] {
        fs::copy(root().join(file), folder.path().join(file)).unwrap();
    }
    git(folder.path(), &["init", "-q", "-b", "main"], 0);
    git(folder.path(), &["add", "."], 0);
    let first = commit(folder.path(), 1_700_000_000);
    (folder, first)
}

fn older(a: &str, b: &str) -> bool {
    Command::new("dpkg").args(["--compare-versions", a, "lt", b]).status().expect("Debian has dpkg").success()
}

#[test]
fn every_commit_is_newer_than_the_one_before() {
    let (repository, first) = repository();
    let folder = repository.path();
    assert!(first.starts_with("0.1.0+git20231114.221320.1."), "{first}");
    // In one second; with a clock that is wrong by a day; after years; nine and more of a day.
    let mut times = vec![1_700_000_000, 1_700_000_000, 1_699_913_600, 1_900_000_000, 1_900_000_000];
    times.extend((0..9).map(|minute| 1_900_000_000 + 60 * minute));
    let mut versions = vec!["0.1.0".to_string(), "0.1.0+g3c17c60d51".into(), first];
    versions.extend(times.into_iter().map(|seconds| commit(folder, seconds)));
    // A branch of older commits that comes in is newer than both.
    git(folder, &["checkout", "-q", "-b", "side", "HEAD~2"], 0);
    commit(folder, 1_700_000_001);
    git(folder, &["checkout", "-q", "main"], 0);
    git(folder, &["merge", "-q", "--no-ff", "-m", "x", "side"], 1_700_000_002);
    versions.push(version::of(folder, BASE).text);
    versions.push("0.1.1".into());
    for pair in versions.windows(2) {
        assert!(older(&pair[0], &pair[1]), "{pair:?}");
    }
}

#[test]
fn a_shallow_clone_and_an_archive_are_in_the_same_order() {
    let (repository, first) = repository();
    let folder = repository.path();
    let second = commit(folder, 1_700_000_100);
    let here = TempDir::new().unwrap();
    let clone = here.path().join("clone");
    let url = format!("file://{}", folder.display());
    git(here.path(), &["clone", "-q", "--depth=1", &url, clone.to_str().unwrap()], 0);
    git(folder, &["archive", "--format=tar", "-o", here.path().join("x.tar").to_str().unwrap(), "HEAD"], 0);
    let archive = here.path().join("archive");
    fs::create_dir(&archive).unwrap();
    let unpacked =
        Command::new("tar").current_dir(&archive).args(["-xf", "../x.tar"]).status().expect("Debian has tar");
    assert!(unpacked.success());
    let third = commit(folder, 1_700_000_200);
    let commit = second.rsplit('.').next().unwrap();
    for tree in [clone, archive] {
        let version = version::of(&tree, BASE);
        assert_eq!(version.text, format!("0.1.0+git20231114.221500.0.{commit}"));
        assert_eq!(version.fixed, None);
        assert!(older(&first, &version.text) && older(&version.text, &third));
    }
}

#[test]
fn a_bare_tree_says_that_its_version_does_not_grow() {
    let tree = TempDir::new().unwrap();
    let version = version::of(tree.path(), BASE);
    assert_eq!(version.text, BASE);
    assert!(version.fixed.unwrap().contains("not a git repository"));
    // Nor is it some other repository's, nor what stands in a stamp that nobody filled in.
    let (repository, _) = repository();
    let inside = repository.path().join("inside");
    fs::create_dir_all(inside.join("packaging")).unwrap();
    fs::copy(root().join(version::STAMP), inside.join(version::STAMP)).unwrap();
    let version = version::of(&inside, BASE);
    assert_eq!(version.text, BASE);
    assert!(version.fixed.unwrap().contains("belongs to the repository"));
}

#[test]
fn a_commit_is_noticed_by_the_next_build() {
    let (repository, _) = repository();
    let log = repository.path().join(".git/logs/HEAD");
    assert!(version::of(repository.path(), BASE).watch.contains(&log));
    // A worktree has a log of its own.
    let tree = TempDir::new().unwrap();
    let path = tree.path().join("tree");
    git(repository.path(), &["worktree", "add", "-q", path.to_str().unwrap()], 0);
    let watch = version::of(&path, BASE).watch;
    assert!(watch.iter().all(|file| file.exists()) && !watch.contains(&log), "{watch:?}");
}

#[test]
fn the_program_says_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_overbook")).arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("overbook {}\n", env!("OVERBOOK_BUILD")));
}
