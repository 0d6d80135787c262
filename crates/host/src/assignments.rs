// SPDX-License-Identifier: GPL-2.0-only
//! What somebody has said of the classes of VMs that run, in a file: it is heeded however often the scheduler begins anew, and
//! may be said before one runs.

use anyhow::{Context, Result};
use overbook_cli::files::{make_dir, replace};
use overbook_policy::class::Class;
use procfs::FromRead;
use procfs::process::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where it is. It ends with the boot, as processes do.
pub const FILE: &str = "/run/overbook/classes.json";

/// A process and its class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Assigned {
    pid: u32,
    /// When the process began, in ticks since the boot: a later one may have its number.
    began: u64,
    /// The class by its name: versions may know different ones.
    class: String,
}

impl Assigned {
    fn still_runs(&self) -> bool {
        began(self.pid) == Some(self.began)
    }
}

/// Writes down that the VM of a process has this class until it ends.
///
/// # Errors
/// There is no such process, or the file cannot be written.
pub fn assign(file: &Path, pid: u32, class: Class) -> Result<()> {
    let problem = || format!("cannot write {}", file.display());
    let began = began(pid).with_context(|| format!("process {pid} has ended"))?;
    if let Some(folder) = file.parent() {
        make_dir(folder).with_context(problem)?;
    }
    // Who can open it can lock it: root only.
    let mut options = File::options();
    let lock = options.write(true).create(true).mode(0o600).open(file.with_extension("lock"));
    let lock = lock.with_context(problem)?;
    lock.lock().with_context(problem)?;
    // What cannot be read is lost anyway, and no reason to refuse what is said now.
    let mut all = read(file).inspect_err(|why| log::warn!("{why:#}: written anew")).unwrap_or_default();
    all.retain(|one| one.pid != pid && one.still_runs());
    all.push(Assigned { pid, began, class: class.name().into() });
    replace(file, &serde_json::to_vec(&all)?).with_context(problem)
}

/// The file as it was last read.
pub struct Assignments {
    file: PathBuf,
    all: Vec<Assigned>,
    /// Whether it was said that it cannot be read.
    complained: bool,
}

impl Assignments {
    /// To be read from a file.
    pub fn of(file: &Path) -> Assignments {
        Assignments { file: file.into(), all: Vec::new(), complained: false }
    }

    /// Reads the file. Where it cannot be read, what was read before holds.
    pub fn look(&mut self) {
        match read(&self.file) {
            Ok(all) => (self.all, self.complained) = (all, false),
            Err(why) if !self.complained => {
                log::warn!("{why:#}: classes that were said of VMs stay as they are");
                self.complained = true;
            }
            Err(_) => {}
        }
        self.all.retain(Assigned::still_runs);
    }

    /// Classes by process, of those that this version knows.
    pub fn classes(&self) -> BTreeMap<u32, Class> {
        self.all.iter().filter_map(|one| Some((one.pid, Class::named(&one.class)?))).collect()
    }
}

fn read(file: &Path) -> Result<Vec<Assigned>> {
    let text = match fs::read(file) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    serde_json::from_slice(&text).with_context(|| format!("{} is broken", file.display()))
}

/// When a process began, in ticks since the boot, if it is there.
fn began(pid: u32) -> Option<u64> {
    Some(Stat::from_file(format!("/proc/{pid}/stat")).ok()?.starttime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    fn seen(file: &Path) -> Vec<(u32, Class)> {
        let mut assignments = Assignments::of(file);
        assignments.look();
        assignments.classes().into_iter().collect()
    }

    #[test]
    fn what_was_said_is_there_for_who_begins_later() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("below/classes.json");
        assert_eq!(seen(&file), []);
        assign(&file, id(), Class::Batch).unwrap();
        assert_eq!(seen(&file), [(id(), Class::Batch)]);
        let mut running = Assignments::of(&file);
        running.look();
        assign(&file, id(), Class::Latency).unwrap();
        running.look();
        assert_eq!(running.classes(), BTreeMap::from([(id(), Class::Latency)]));
        assign(&file, 1, Class::Normal).unwrap();
        running.look();
        assert_eq!(running.classes(), BTreeMap::from([(1, Class::Normal), (id(), Class::Latency)]));
        fs::remove_file(&file).unwrap();
        running.look();
        assert!(running.classes().is_empty());
    }

    #[test]
    fn it_ends_with_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("classes.json");
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        assign(&file, child.id(), Class::Latency).unwrap();
        let mut running = Assignments::of(&file);
        running.look();
        assert_eq!(running.classes().len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        running.look();
        assert!(running.classes().is_empty());
        assert!(assign(&file, child.id(), Class::Batch).unwrap_err().to_string().contains("has ended"));
        // Another process has the number of one that had been said to be batch.
        let other = Assigned { pid: id(), began: began(id()).unwrap() - 1, class: "batch".into() };
        fs::write(&file, serde_json::to_vec(&[other]).unwrap()).unwrap();
        assert_eq!(seen(&file), []);
        // Who writes forgets those that have ended.
        assign(&file, 1, Class::Normal).unwrap();
        assert_eq!(read(&file).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_read_says_nothing_and_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("classes.json");
        let began = began(id()).unwrap();
        for text in ["", "[{", "{}", &format!(r#"[{{"pid":{},"began":{began},"class":"fast"}}]"#, id())] {
            fs::write(&file, text).unwrap();
            assert_eq!(seen(&file), [], "{text}");
        }
        fs::write(&file, "nonsense").unwrap();
        assign(&file, id(), Class::Batch).unwrap();
        let mut running = Assignments::of(&file);
        running.look();
        fs::write(&file, "nonsense").unwrap();
        running.look();
        assert_eq!(running.classes(), BTreeMap::from([(id(), Class::Batch)]));
    }

    /// Hooks of many VMs come at once when a host boots.
    #[test]
    fn many_at_once_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("classes.json");
        let mut children: Vec<_> =
            (0..8).map(|_| Command::new("sleep").arg("60").spawn().expect("sleep")).collect();
        std::thread::scope(|scope| {
            for pid in children.iter().map(std::process::Child::id) {
                let file = &file;
                scope.spawn(move || assign(file, pid, Class::Batch).unwrap());
            }
        });
        let said = seen(&file);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(said.len(), 8, "{said:?}");
    }
}
