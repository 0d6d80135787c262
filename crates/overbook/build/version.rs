// SPDX-License-Identifier: GPL-2.0-only
//! The version of a build: `0.2.0+git20261122.130835.114.3c17c60d51`, so that dpkg takes every commit for newer than the one
//! before. After the base come the newest commit's day and time (UTC), the number of commits, and the commit.
//!
//! Time and number never go back along a history: the time is the newest of all commits, so a wrong clock does no harm, and of
//! two commits in one second the later has more before it. A shallow clone and an archive do not know the number, and say 0.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What `git archive` fills in: time and commit.
pub const STAMP: &str = "packaging/version";

/// How many digits of a commit are told.
const DIGITS: usize = 10;

/// A version, why it does not grow if it does not, and what changes when it changes.
#[derive(Debug)]
pub struct Version {
    pub text: String,
    pub fixed: Option<String>,
    pub watch: Vec<PathBuf>,
}

/// The version of the tree in `root`, as git tells, else as an archive's stamp does, else the base alone, which is older than
/// all others.
pub fn of(root: &Path, base: &str) -> Version {
    let stamp = root.join(STAMP);
    let (suffix, mut watch) = match (of_git(root), of_stamp(&stamp)) {
        (Ok((suffix, watch)), _) => (Ok(suffix), watch),
        (_, Some(suffix)) => (Ok(suffix), Vec::new()),
        (Err(reason), None) => (Err(reason), Vec::new()),
    };
    watch.extend(Some(stamp).filter(|stamp| stamp.exists()));
    match suffix {
        Ok(suffix) => Version { text: format!("{base}+git{suffix}"), fixed: None, watch },
        Err(reason) => Version { text: base.into(), fixed: Some(reason), watch },
    }
}

fn of_git(root: &Path) -> Result<(String, Vec<PathBuf>), String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    // A tarball may lie in somebody else's repository.
    if top.canonicalize().ok() != root.canonicalize().ok() {
        return Err(format!("it belongs to the repository in {}", top.display()));
    }
    let times = git(root, &["log", "--date=format-local:%Y%m%d.%H%M%S", "--format=%cd", "HEAD"])?;
    let newest = times.lines().max().unwrap_or_default();
    let commits = match git(root, &["rev-parse", "--is-shallow-repository"])?.as_str() {
        "true" => 0,
        _ => times.lines().count(),
    };
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let file = |name| git(root, &["rev-parse", "--git-path", name]).map(|file| root.join(file));
    // Every commit is a line of the log of HEAD; where no log is kept, the branches change.
    let log = Some(file("logs/HEAD")?).filter(|log| log.exists()).map_or_else(|| file("refs/heads"), Ok)?;
    Ok((suffix(newest, commits, &commit), vec![file("HEAD")?, log]))
}

fn of_stamp(stamp: &Path) -> Option<String> {
    let text = std::fs::read_to_string(stamp).ok()?;
    let (seconds, commit) = text.trim().split_once(' ')?;
    let seconds: u64 = seconds.parse().ok()?;
    let mut date = Command::new("date");
    let time = output(date.args(["-u", "-d", &format!("@{seconds}"), "+%Y%m%d.%H%M%S"])).ok()?;
    Some(suffix(&time, 0, commit))
}

fn suffix(time: &str, commits: usize, commit: &str) -> String {
    format!("{time}.{commits}.{}", commit.get(..DIGITS).unwrap_or(commit))
}

/// What git says of the repository that `root` lies in, whoever owns it, and whatever a hook has set.
fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(variable);
    }
    output(git.env("TZ", "UTC").arg("-C").arg(root).args(["-c", "safe.directory=*"]).args(arguments))
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|e| format!("cannot run {}: {e}", command.get_program().to_string_lossy()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")),
    }
}
