// SPDX-License-Identifier: GPL-2.0-only
//! Every command, wherever it may be started: nothing hangs, nothing panics, and what fails says why in one sentence.
//! `tests/data/walk.txt` holds what is tried of each; a test in main.rs sees to it that no command is missing there.

mod common;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getuid, setsid};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, pipe};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LINES: &str = include_str!("data/walk.txt");
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/headline/lock-2to1.toml");

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who may do nothing: nobody.
const NOBODY: u32 = 65534;

/// Where commands are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// No terminal, as everywhere here; all else is as it should be.
    Plain,
    /// The reader of stdout has gone.
    ClosedOutput,
    /// Of stderr as well.
    AllClosed,
    /// stdout and stderr are on a full disk.
    FullDisk,
    NoNetwork,
    NoPermission,
}

struct Ended {
    status: ExitStatus,
    /// Nothing if nobody could read it.
    said: Option<String>,
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe whose reader has gone.
fn closed() -> Stdio {
    pipe().unwrap().1.into()
}

fn start(program: &Path, words: &[&str], place: Place, dir: &Path) -> Ended {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).current_dir(dir);
    command
        .env("HOME", dir)
        .env("OVERBOOK_CACHE", dir.join("cache"))
        .env("OVERBOOK_CONFIG", dir.join("overbook.toml"));
    // A mirror that is not there is not there the fourth time either.
    command.env("APT_CONFIG", dir.join("apt.conf"));
    let (mut reader, writer) = pipe().unwrap();
    let mut heard = Some(writer);
    command.stdout(match place {
        Place::ClosedOutput | Place::AllClosed => closed(),
        Place::FullDisk => full().into(),
        _ => Stdio::null(),
    });
    command.stderr(match place {
        Place::AllClosed => closed(),
        Place::FullDisk => full().into(),
        _ => heard.take().unwrap().into(),
    });
    let root = getuid().is_root();
    if place == Place::NoPermission && root {
        command.uid(NOBODY).gid(NOBODY);
    }
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if place == Place::NoNetwork {
                // Whoever is not root needs a namespace of users first; where there is none, the network stays.
                let more = if root { CloneFlags::empty() } else { CloneFlags::CLONE_NEWUSER };
                let _ = unshare(CloneFlags::CLONE_NEWNET | more);
            }
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    // Their ends of the pipe would keep it open.
    drop((command, heard));
    let listener = std::thread::spawn(move || {
        let mut said = Vec::new();
        reader.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{words:?} hangs in {place:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let said = listener.join().unwrap().unwrap();
    let heard = !matches!(place, Place::AllClosed | Place::FullDisk);
    Ended { status, said: heard.then_some(said) }
}

/// Sentences that say why it failed: ours, and clap's.
fn sentences(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("overbook: ") || line.starts_with("error: ")).count()
}

fn look(words: &[&str], place: Place, ended: &Ended) -> Result<(), String> {
    let said = ended.said.as_deref().unwrap_or_default();
    let wrong = |what: &str| Err(format!("{words:?} in {place:?} {what} ({}): {said}", ended.status));
    if ended.status.code() == Some(101) || said.contains("panicked") {
        return wrong("panics");
    }
    match (ended.status.code(), ended.status.signal()) {
        (Some(0), _) if said.contains("overbook: ") => wrong("complains, and ends as if all were well"),
        (Some(0), _) => Ok(()),
        // As any tool whose reader has gone.
        (None, Some(libc::SIGPIPE)) if matches!(place, Place::ClosedOutput | Place::AllClosed) => {
            if said.contains("overbook: ") { wrong("is not quiet") } else { Ok(()) }
        }
        (None, _) => wrong("is killed"),
        _ if ended.said.is_some() && sentences(said) != 1 => wrong("fails without one sentence"),
        _ => Ok(()),
    }
}

/// The program where anybody may run it: the tree may be in a folder that is closed to others, as root's home is.
fn open_program(folder: &Path) -> PathBuf {
    let program = folder.join("overbook");
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    // Copied here, a child of another test would have it open for writing for a moment, and nobody could run it.
    let copied =
        Command::new("cp").args([env!("CARGO_BIN_EXE_overbook").as_ref(), program.as_os_str()]).status();
    assert!(copied.expect("cp runs: it is essential in Debian").success());
    program
}

fn walk(place: Place) {
    common::nothing_is_at_work();
    let mut wrong = Vec::new();
    let folder = TempDir::new().unwrap();
    let program = match place {
        Place::NoPermission => open_program(folder.path()),
        _ => env!("CARGO_BIN_EXE_overbook").into(),
    };
    for line in LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('!') && place != Place::NoNetwork {
            continue;
        }
        let dir = TempDir::new().unwrap();
        // Nobody may pass, and read; only the plain places may write.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("overbook.toml"), "").unwrap();
        fs::write(dir.path().join("apt.conf"), "Acquire::Retries \"0\";\n").unwrap();
        fs::create_dir_all(dir.path().join("data")).unwrap();
        // Under another name, lest a mistake of a command that runs as root replaces the device.
        symlink("/dev/full", dir.path().join("full")).unwrap();
        for name in ["recording.jsonl", "report.json"] {
            fs::copy(Path::new(DATA).join(name), dir.path().join("data").join(name)).unwrap();
        }
        fs::copy(SCENARIO, dir.path().join("data/lock-2to1.toml")).unwrap();
        let line = line.trim_start_matches('!');
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                let own = dir.path().display().to_string();
                word.replace("{dir}", &own)
                    .replace("{recording}", &format!("{own}/data/recording.jsonl"))
                    .replace("{report}", &format!("{own}/data/report.json"))
                    .replace("{scenario}", &format!("{own}/data/lock-2to1.toml"))
                    .replace("{full}", &format!("{own}/full"))
                    // Not even root can make anything there.
                    .replace("{bad}", "/proc/1/nothing")
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = start(&program, &words, place, dir.path());
        wrong.extend(look(&words, place, &ended).err());
        let full = fs::metadata(dir.path().join("full")).unwrap();
        assert!(full.file_type().is_char_device(), "{words:?} replaces a device");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_is_as_it_should_be_but_for_a_terminal() {
    walk(Place::Plain);
}

#[test]
fn a_closed_output_ends_quietly() {
    walk(Place::ClosedOutput);
    walk(Place::AllClosed);
}

#[test]
fn a_full_disk_is_no_panic() {
    walk(Place::FullDisk);
}

#[test]
fn there_is_no_network() {
    walk(Place::NoNetwork);
}

#[test]
fn nothing_is_permitted() {
    walk(Place::NoPermission);
}
