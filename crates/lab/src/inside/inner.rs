// SPDX-License-Identifier: GPL-2.0-only
//! The agent of a Linux guest inside the host: runs a program again and again, and has `overbook guest` or its kernel pack
//! it when told so.

use super::governor::Governor;
use super::preference::Preferred;
use super::stretched::{self, Publisher};
use crate::experiment::scheduler::Scheduler;
use crate::machine::describe;
use crate::machine::task::{self, now_ns};
use crate::protocol::{GuestAnswer, GuestCount, GuestOrder, InnerGuest, PACKAGES_DIR};
use anyhow::{Context, Result, anyhow, ensure};
use nix::mount::{MsFlags, mount};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs of the program so far.
#[derive(Default)]
struct Runs {
    stop: AtomicBool,
    /// Nobody asks any more.
    gone: AtomicBool,
    sum: Mutex<GuestCount>,
    preferred: Preferred,
}

/// Obeys orders from the host until the machine is killed.
///
/// # Errors
/// The serial line ends.
pub fn serve(guest: &InnerGuest, port: &mut super::Port) -> Result<()> {
    let mut orders = BufReader::new(port.0.try_clone()?).lines();
    let mut cooperation = Cooperation { scheduler: Scheduler::new("guest"), publisher: None, governor: None };
    // Orders are heard also beside tasks that want all CPUs.
    let _ = task::set_policy(libc::SCHED_FIFO, 1);
    let runs = Runs { preferred: Preferred::new(describe::online_cpus()?.len() as u64), ..Runs::default() };
    mount_packages()?;
    in_a_slice()?;
    if !guest.prepare.is_empty() {
        run(&guest.prepare)?;
    }
    thread::scope(|scope| {
        let mut worker = None;
        let _ends = Ends(&runs.gone);
        scope.spawn(|| runs.preferred.watch(&runs.gone));
        port.say(&GuestAnswer::Done(GuestCount::default()))?;
        loop {
            let line = orders.next().context("the host has gone")??;
            let Ok(order) = serde_json::from_str(&line) else { continue };
            let outcome = match order {
                GuestOrder::Attach(arguments) => cooperation.attach(guest.weight, arguments),
                GuestOrder::Govern(parameters) => cooperation.govern(&parameters),
                GuestOrder::Detach => cooperation.detach(),
                GuestOrder::Work(_) if worker.is_some() => Err(anyhow!("it works already")),
                GuestOrder::Work(after) => {
                    runs.stop.store(false, Ordering::Relaxed);
                    let runs = &runs;
                    worker = Some(scope.spawn(move || repeat(guest, runs, after)));
                    Ok(())
                }
                GuestOrder::Rest => {
                    runs.stop.store(true, Ordering::Relaxed);
                    let ended = worker.take().map(thread::ScopedJoinHandle::join);
                    ended.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| Err(anyhow!("the work panicked")))
                }
                GuestOrder::Count => Ok(()),
            };
            let answer = outcome.and_then(|()| count(&runs, guest.weight));
            port.say(&answer.map_or_else(|e| GuestAnswer::Failed(format!("{e:#}")), GuestAnswer::Done))?;
        }
    })
}

/// What packs this guest.
struct Cooperation {
    /// `overbook guest`.
    scheduler: Scheduler,
    /// What it reads: steal times of a stretched guest.
    publisher: Option<Publisher>,
    /// The kernel's own.
    governor: Option<Governor>,
}

impl Cooperation {
    fn attach(&mut self, weight: u32, mut arguments: Vec<String>) -> Result<()> {
        if weight > 1 {
            self.publisher = Some(Publisher::start(Path::new(stretched::PUBLISHED), weight)?);
            arguments.extend(["--steal-from", stretched::PUBLISHED].map(String::from));
        }
        self.scheduler.attach(&arguments, 1.0)
    }

    fn govern(&mut self, parameters: &BTreeMap<String, u64>) -> Result<()> {
        self.governor = Some(Governor::start(parameters)?);
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        if let Some(governor) = self.governor.take() {
            return governor.end();
        }
        let outcome = self.scheduler.detach().map(drop);
        self.publisher = None;
        outcome
    }
}

fn repeat(guest: &InnerGuest, runs: &Runs, after: Duration) -> Result<()> {
    // What it starts is an ordinary task.
    task::set_policy(libc::SCHED_OTHER, 0)?;
    thread::sleep(after);
    while !runs.stop.load(Ordering::Relaxed) {
        let start = now_ns();
        let text = run(&guest.command)?;
        let run_ns = now_ns() - start;
        let done = match &guest.figure {
            Some(word) => {
                let rate = number_after(&text, word);
                let rate = rate.with_context(|| {
                    format!("{} says no number after {word}: {}", guest.command[0], text.trim())
                })?;
                rate * run_ns as f64 / 1e9
            }
            None => 1.0,
        };
        let mut sum = runs.sum.lock().map_err(|_| anyhow!("a counter is broken"))?;
        *sum = GuestCount { runs: sum.runs + 1, run_ns: sum.run_ns + run_ns, done: sum.done + done, ..*sum };
    }
    Ok(())
}

/// Runs a program of the packages to its end, with these as its root, and gives what it prints.
fn run(words: &[String]) -> Result<String> {
    let (program, arguments) = words.split_first().context("nothing to run")?;
    let root = CString::new(format!("/{PACKAGES_DIR}"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env("PATH", "/usr/bin:/usr/sbin").env("HOME", "/tmp");
    // SAFETY: both calls are plain system calls.
    unsafe {
        command.pre_exec(move || match libc::chroot(root.as_ptr()) {
            0 if libc::chdir(c"/".as_ptr()) == 0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed ({}): {}", output.status, why.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What programs expect to find beside their own files.
fn mount_packages() -> Result<()> {
    fs::create_dir("/dev/shm")?;
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    for dir in ["/proc", "/sys", "/dev", "/run", "/tmp"] {
        let to = format!("/{PACKAGES_DIR}{dir}");
        mount(Some(dir), to.as_str(), None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
            .with_context(|| format!("cannot mount {to}"))?;
    }
    Ok(())
}

/// Moves all of this into a cgroup below the root's, as systemd has it: `overbook guest` finds tasks there.
fn in_a_slice() -> Result<()> {
    fs::create_dir("/sys/fs/cgroup/system.slice")?;
    fs::write("/sys/fs/cgroup/system.slice/cgroup.procs", "0").context("cannot enter a cgroup")
}

/// Raised however a scope ends, as the scope waits for its threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number that stands behind the last `word` of a text.
fn number_after(text: &str, word: &str) -> Option<f64> {
    text.rsplit_once(word)?.1.split_whitespace().next()?.parse().ok()
}

fn count(runs: &Runs, weight: u32) -> Result<GuestCount> {
    let cpus = stretched::now(weight)?;
    let (preferred_ns, changes) = runs.preferred.so_far()?;
    let sum = runs.sum.lock().map_err(|_| anyhow!("a counter is broken"))?;
    Ok(GuestCount {
        ticks: cpus.iter().map(|cpu| cpu.all()).sum(),
        steal_ticks: cpus.iter().map(|cpu| cpu.steal).sum(),
        preferred_ns,
        changes,
        ..*sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_behind_the_last_word_counts() {
        let text = " 4 1 0.75 MB/sec\nThroughput 1.5 MB/sec\nThroughput 12.25 MB/sec  4 clients\n";
        assert_eq!(number_after(text, "Throughput"), Some(12.25));
        assert_eq!(number_after("Throughput fast", "Throughput"), None);
        assert_eq!(number_after("", "Throughput"), None);
    }
}
