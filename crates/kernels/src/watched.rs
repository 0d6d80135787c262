// SPDX-License-Identifier: GPL-2.0-only
//! Programs that may take long: whoever waits hears every few seconds that something happens, and they end with him.

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two words.
const EVERY: Duration = Duration::from_secs(5);

/// Runs a program to its end and gives its output.
///
/// # Errors
/// It cannot be run, or fails: the line in which it says why.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    output_with(command, EVERY, &mut |_| {})
}

/// Like [`output`], and calls `tick` with the seconds that have passed, now and then.
///
/// # Errors
/// As [`output`].
pub(crate) fn output_watched(command: &mut Command, tick: &mut dyn FnMut(u64)) -> Result<String> {
    output_with(command, EVERY, tick)
}

fn output_with(command: &mut Command, every: Duration, tick: &mut dyn FnMut(u64)) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Files, as nobody reads while it runs.
    let (out, err) = (scratch()?, scratch()?);
    // SAFETY: a system call only. Not SIGKILL: make ends what it has started.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().context("cannot share a temporary file")?)
        .stderr(err.try_clone().context("cannot share a temporary file")?)
        .spawn()
        .with_context(|| format!("cannot run {program}: install it (`make setup` does)"))?;
    let start = Instant::now();
    let mut next = every;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {program}"))? {
            break status;
        }
        sleep(Duration::from_millis(20));
        if start.elapsed() >= next {
            next += every;
            tick(start.elapsed().as_secs());
        }
    };
    let text = read(out)?;
    if !status.success() {
        let errors = read(err)?;
        let why = reason(text.lines().chain(errors.lines()));
        bail!("{program}: {}", why.unwrap_or("failed without a word").trim());
    }
    Ok(text)
}

/// The line in which apt, a compiler, meson or tar says why it failed, or the last one.
fn reason<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    const MARKS: [&str; 4] = ["No space left", "error:", "ERROR:", "Error:"];
    let says = |line: &&str| line.starts_with("E:") || MARKS.iter().any(|mark| line.contains(mark));
    lines.clone().find(says).or(lines.last())
}

fn scratch() -> Result<File> {
    tempfile::tempfile().context("cannot make a temporary file: is the disk full? TMPDIR names another place")
}

fn read(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context("cannot read a temporary file")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_given_and_reasons_are_found() {
        assert_eq!(output(&mut shell("echo a; echo b >&2")).unwrap(), "a\n");
        let why = output(&mut shell("echo W: x >&2; echo E: no such thing >&2; exit 100")).unwrap_err();
        assert_eq!(why.to_string(), "sh: E: no such thing");
        let why = output(&mut shell("exit 1")).unwrap_err();
        assert_eq!(why.to_string(), "sh: failed without a word");
        let why = output(&mut Command::new("/nonexistent/apt-get")).unwrap_err().to_string();
        assert!(why.starts_with("cannot run /nonexistent/apt-get: install it"), "{why}");
    }

    #[test]
    fn a_reason_is_no_name_and_no_last_word() {
        let tar = "tar: x: Cannot write: No space left on device\ntar: Exiting with failure status due to previous errors";
        assert_eq!(reason(tar.lines()), tar.lines().next());
        let cargo = "  Downloaded thiserror v2.0.1\nerror: failed to run custom build command";
        assert_eq!(reason(cargo.lines()), cargo.lines().last());
        let meson = "Found ninja\n../meson.build:9:0: ERROR: Dependency \"fdt\" not found\nA full log can be found at x";
        assert_eq!(reason(meson.lines()), meson.lines().nth(1));
        let make = "make[1]: *** [a] Error 1\nmake: *** [b] Error 2";
        assert_eq!(reason(make.lines()), make.lines().last());
    }

    #[test]
    fn whoever_waits_hears_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        // It ends only after it was told of.
        let mut command = shell(&format!("until [ -e {} ]; do sleep 0.01; done", seen.display()));
        let mut ticks = 0;
        let mut tick = |_| {
            ticks += 1;
            std::fs::write(&seen, "").unwrap();
        };
        output_with(&mut command, Duration::from_millis(1), &mut tick).unwrap();
        assert!(ticks > 0);
    }

    #[test]
    fn nothing_outlives_who_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (began, ended) = (dir.path().join("began"), dir.path().join("ended"));
        let script = format!(
            "trap 'touch {}; exit' TERM; touch {}; while :; do sleep 0.01; done",
            ended.display(),
            began.display()
        );
        let waits = std::thread::spawn(move || {
            let mut die = |_| assert!(!began.exists(), "this thread ends, on purpose");
            output_with(&mut shell(&script), Duration::from_millis(1), &mut die)
        });
        assert!(waits.join().is_err());
        while !ended.exists() {
            sleep(Duration::from_millis(1));
        }
    }
}
