// SPDX-License-Identifier: GPL-2.0-only
//! `make fresh` leaves nothing behind, however it ends, and removes nothing that is not its own. As root; no Debian is
//! unpacked to its end.

use super::text;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fresh")
}

/// `tools/fresh` with a cache of its own.
fn fresh(cache: &TempDir) -> Command {
    // Tests may run in the background, where Ctrl-C is ignored.
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT")
        .arg(script())
        .args(["--", "true"])
        .env("XDG_CACHE_HOME", cache.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn root(cache: &TempDir) -> PathBuf {
    cache.path().join("overbook/fresh/root")
}

/// Reads until a line says so; what was said until then.
fn until(child: &mut Child, word: &str) -> String {
    let mut said = String::new();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap().by_ref());
    while !said.contains(word) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{word:?} never came: {said}");
    }
    said
}

/// Waits until Debian is being unpacked, so that there is something to leave behind.
fn until_unpacking(child: &mut Child, cache: &TempDir) {
    while !root(cache).join("var").exists() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("tools/fresh has ended with {status}, before anything was unpacked: {said}");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn fresh_cleans_up_after_kill_and_interruption() {
    let cache = TempDir::new().unwrap();
    let mut killed = fresh(&cache).spawn().unwrap();
    until_unpacking(&mut killed, &cache);
    kill(Pid::from_raw(killed.id() as i32), Signal::SIGKILL).unwrap();
    assert_eq!(killed.wait().unwrap().signal(), Some(9));
    assert!(root(&cache).exists(), "nobody was there to remove it");

    let mut interrupted = fresh(&cache).spawn().unwrap();
    let said = until(&mut interrupted, "fresh: a minimal Debian");
    assert!(said.contains("removing what a killed run left behind"), "{said}");
    until_unpacking(&mut interrupted, &cache);
    kill(Pid::from_raw(interrupted.id() as i32), Signal::SIGINT).unwrap();
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert!(!root(&cache).exists(), "the root is still there");
    // Whoever still ran would hold it.
    let mut flock = Command::new("flock");
    let free = flock.arg("--nonblock").arg(root(&cache).with_file_name("alive")).arg("true").status();
    let free = free.expect("flock runs: it is essential in Debian");
    assert!(free.success(), "something that it started still runs");
}

/// In namespaces of the test's own, so that its mount goes with it.
#[test]
fn fresh_removes_nothing_below_a_mount() {
    let cache = TempDir::new().unwrap();
    let inside = root(&cache).join("inside");
    fs::create_dir_all(&inside).unwrap();
    let script = format!(
        "mount -t tmpfs none {inside} && touch {inside}/kept && ! {fresh} -- true && test -e {inside}/kept && echo kept",
        inside = inside.display(),
        fresh = script().display()
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .expect("unshare runs: it is essential in Debian");
    let said = text(&output);
    assert!(output.status.success() && said.contains("kept"), "{said}");
    assert!(said.contains("inside is mounted below") && said.contains("unmount it and try again"), "{said}");
}
