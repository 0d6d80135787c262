// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest` keeps tasks on preferred CPUs by sched_ext: on a machine of two cores of two siblings each.

use super::guest::{Guest, Injected, PATIENCE, Worker, places, preferred, stats, wait};
use super::kernel::{complaints, restarts, set_online};
use super::program::overbook;
use crate::machine::describe::scheduler_state;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

const IRQBALANCE: &str = "/run/irqbalance/irqbalance1.sock";

/// Says every step that holds.
///
/// # Errors
/// The first one that does not.
pub fn check(say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let machine = Machine::start()?;
    let mut guest = machine.stands_by()?;
    say("no steal: all CPUs are preferred and used, it stands by, and no other may")?;
    machine.packs(&mut guest)?;
    say("half is stolen: one core of two siblings stays, and tasks run there only")?;
    machine.lets_bound_tasks_be()?;
    say("tasks bound to other CPUs run there and are counted; no affinity has changed")?;
    machine.hears(&mut guest, "settings cpus 2-3")?;
    say("irqbalance is told, once CPUs have settled")?;
    machine.takes_a_choice(&mut guest)?;
    say("CPUs can be chosen by hand; nonsense is refused; `auto` goes back")?;
    takes_other_rules(&mut guest)?;
    say("thresholds and the governor change while it runs; nonsense is refused")?;
    machine.comes_back(&mut guest)?;
    say("steal is over: all CPUs come back, irqbalance as it was, and the tasks are EEVDF's")?;
    machine.sees_a_cpu_go(&mut guest)?;
    say("a CPU went while it stood by: loaded again, and one core is left")?;
    machine.sees_a_cpu_come(&mut guest)?;
    say("a CPU came while it scheduled: loaded again, and one core is preferred")?;
    machine.is_killed(guest)?;
    say("kill -9: EEVDF uses all CPUs, the list is gone, irqbalance is as it was")?;
    machine.without_irqbalance().steers_interrupts()?;
    say("without irqbalance, and asked to: interrupts are moved, and put back")?;
    if let Some(line) = complaints()? {
        bail!("the kernel complains: {line}");
    }
    say("the guest scheduler does what it promises, and the kernel had no complaint")
}

/// Starts one that enforces by sched_ext.
fn load(more: &[&str]) -> Result<Guest> {
    Guest::start(&[&["--enforce", "sched-ext"], more].concat())
}

/// What the guest has: steal that is injected, somebody in irqbalance's place, and tasks that always want a CPU.
struct Machine {
    steal: Injected,
    irqbalance: Option<StandIn>,
    free: Vec<Worker>,
    /// Bound to CPU 3.
    pinned: Worker,
    /// Bound to CPUs 2 and 3.
    pair: Worker,
}

impl Machine {
    fn start() -> Result<Machine> {
        Ok(Machine {
            steal: Injected::start(4, 0)?,
            irqbalance: Some(StandIn::start()?),
            free: (0..4).map(|_| Worker::start(&[])).collect::<Result<_>>()?,
            pinned: Worker::start(&[3])?,
            pair: Worker::start(&[2, 3])?,
        })
    }

    fn all_are_used(&self) -> Result<bool> {
        Ok(places(self.free.iter().chain([&self.pinned, &self.pair]))?.len() == 4)
    }

    /// Whether that is what irqbalance was told last.
    fn was_told(&self, text: &str) -> bool {
        self.irqbalance.as_ref().is_some_and(|irqbalance| irqbalance.last() == text)
    }

    fn hears(&self, guest: &mut Guest, text: &str) -> Result<()> {
        guest.wait(PATIENCE, "tell irqbalance", || Ok(self.was_told(text)))
    }

    fn stands_by(&self) -> Result<Guest> {
        let mut guest = load(&["--interval-ms", "100", "--irq-settle", "2"])?;
        guest.wait_for_load("load, and prefer all CPUs", || Ok(preferred() == "0-3"))?;
        guest.wait(PATIENCE, "use all CPUs", || self.all_are_used())?;
        ensure!(scheduler_state()? == "disabled", "without steal, it does not stand by");
        for arguments in [&["guest"][..], &["guest", "--clean-up"]] {
            refuses(arguments, "stop it")?;
        }
        Ok(guest)
    }

    fn packs(&self, guest: &mut Guest) -> Result<()> {
        self.steal.set(50);
        guest.wait(PATIENCE, "prefer one core", || Ok(preferred() == "0-1"))?;
        ensure!(scheduler_state()? == "enabled", "with steal, it does not schedule");
        // A worker that waits still tells the CPU that it has left; and now and then one core more is tried.
        guest.wait(PATIENCE, "run tasks on preferred CPUs only", || {
            Ok(places(&self.free)?.iter().all(|cpu| *cpu < 2))
        })
    }

    fn lets_bound_tasks_be(&self) -> Result<()> {
        let alone = [&self.pinned, &self.pair].map(|w| w.used_within(Duration::from_millis(500)));
        ensure!(alone.iter().all(|used| *used > 0.2), "tasks bound elsewhere had {alone:?} of a CPU");
        let kept = self.pinned.affinity()? == [3] && self.pair.affinity()? == [2, 3];
        ensure!(kept && self.free[0].affinity()? == [0, 1, 2, 3], "affinity has changed");
        let stats = stats()?;
        ensure!(stats["outside"].as_u64() > Some(0), "tasks bound elsewhere were not counted: {stats}");
        ensure!(stats["shrinks"].as_u64() > Some(0), "the shrink was not counted: {stats}");
        Ok(())
    }

    fn takes_a_choice(&self, guest: &mut Guest) -> Result<()> {
        for (choice, complaint) in [("0-9", "not online"), ("x", "not a list"), ("", "no CPU")] {
            refuses(&["guest", "--set", &format!("preferred={choice}")], complaint)?;
        }
        // Now and then one core more is tried; a choice by hand would stay.
        guest.wait(PATIENCE, "stay as it was", || Ok(preferred() == "0-1"))?;
        tell("preferred=1,2-3")?;
        ensure!(preferred() == "1-3", "the choice is not published");
        guest.wait(PATIENCE, "follow the choice", || Ok(!places(&self.free)?.contains(&0)))?;
        tell("preferred=auto")?;
        guest.wait(PATIENCE, "choose again", || Ok(preferred() == "0-1"))
    }

    fn comes_back(&self, guest: &mut Guest) -> Result<()> {
        self.steal.set(0);
        guest.wait(PATIENCE, "prefer all again", || Ok(preferred() == "0-3"))?;
        guest.wait(PATIENCE, "use all again", || self.all_are_used())?;
        self.hears(guest, "settings cpus NULL")?;
        guest.wait(PATIENCE, "stand by", || Ok(scheduler_state()? == "disabled"))
    }

    fn sees_a_cpu_go(&self, guest: &mut Guest) -> Result<()> {
        set_online(3, false)?;
        // It is told at once, and answers when it has loaded again.
        guest.wait_for_load("see that a CPU went", || {
            Ok(preferred() == "0-2" && stats().is_ok_and(|stats| stats["online"] == "0-2"))
        })?;
        // Of the three CPUs that are left, one would do.
        self.steal.set(75);
        guest.wait(PATIENCE, "prefer one core", || Ok(preferred() == "0-1"))?;
        self.hears(guest, "settings cpus 2")
    }

    fn sees_a_cpu_come(&self, guest: &mut Guest) -> Result<()> {
        self.steal.set(50);
        let before = restarts()?;
        set_online(3, true)?;
        guest.wait_for_load("come back with a CPU", || {
            Ok(restarts()? > before && scheduler_state()? == "enabled" && preferred() == "0-1")
        })
    }

    fn is_killed(&self, guest: Guest) -> Result<()> {
        guest.kill()?;
        wait(PATIENCE, "leave after kill -9", || Ok(scheduler_state()? == "disabled"))?;
        wait(PATIENCE, "clean up", || Ok(preferred().is_empty() && self.was_told("settings cpus NULL")))?;
        wait(PATIENCE, "use all CPUs", || self.all_are_used())
    }

    fn without_irqbalance(mut self) -> Machine {
        self.irqbalance = None;
        self
    }

    fn steers_interrupts(&self) -> Result<()> {
        self.steal.set(50);
        let moved = movable_irq()?;
        let more = ["--interval-ms", "100", "--irq-settle", "1", "--steer-irqs", "--json", "--stand-by", "0"];
        let mut guest = load(&more)?;
        guest.wait_for_load("load", || Ok(scheduler_state()? == "enabled"))?;
        guest.wait(PATIENCE, "move interrupts", || Ok(irq_cpus(moved)? == "0-1"))?;
        guest.end()?;
        ensure!(irq_cpus(moved)? == "0-3", "interrupt {moved} was not put back: {}", irq_cpus(moved)?);
        ensure!(
            scheduler_state()? == "disabled" && preferred().is_empty(),
            "something is left after SIGTERM"
        );
        Ok(())
    }
}

fn takes_other_rules(guest: &mut Guest) -> Result<()> {
    // More than is stolen: nothing would shrink, and what has shrunk comes back.
    tell("high=9000")?;
    tell("low=8000")?;
    guest.wait(PATIENCE, "follow other thresholds", || Ok(preferred() == "0-3"))?;
    refuses(&["guest", "--set", "low=9500"], "raise high to")?;
    for change in ["low=200", "high=500", "governor=step"] {
        tell(change)?;
    }
    guest.wait(PATIENCE, "follow the published rule", || Ok(preferred() == "0-1"))?;
    tell("governor=proportional")?;
    tell("interval-ms=100000")?;
    sleep(Duration::from_millis(300));
    tell("interval-ms=100")?;
    let samples = || Ok::<_, anyhow::Error>(stats()?["samples"].as_u64());
    let before = samples()?;
    guest.wait(PATIENCE, "look again before the long period is over", || Ok(samples()? > before))
}

/// `overbook` refuses that, and says why.
fn refuses(arguments: &[&str], complaint: &str) -> Result<()> {
    let output = overbook(arguments)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && text.contains(complaint), "{arguments:?}: {text:?}");
    Ok(())
}

/// Changes the one that runs.
fn tell(change: &str) -> Result<()> {
    let output = overbook(&["guest", "--set", change])?;
    ensure!(output.status.success(), "--set {change}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn irq_cpus(irq: u32) -> Result<String> {
    Ok(fs::read_to_string(format!("/proc/irq/{irq}/smp_affinity_list"))?.trim().to_string())
}

/// An interrupt whose CPUs can be set.
fn movable_irq() -> Result<u32> {
    for dir in fs::read_dir("/proc/irq")?.flatten() {
        let Some(irq) = dir.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if irq_cpus(irq).is_ok_and(|cpus| cpus == "0-3")
            && fs::write(dir.path().join("smp_affinity_list"), "0-3").is_ok()
        {
            return Ok(irq);
        }
    }
    bail!("no interrupt of this machine can be moved")
}

/// Listens where irqbalance would.
struct StandIn(Arc<Mutex<Vec<String>>>);

impl StandIn {
    fn start() -> Result<StandIn> {
        fs::create_dir_all("/run/irqbalance")?;
        let listener = UnixListener::bind(IRQBALANCE).context("cannot stand in for irqbalance")?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = told.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut buffer = [0; 512];
                let Ok(n) = stream.read(&mut buffer) else { continue };
                let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                if text == "setup" {
                    let _ = stream.write_all(b"SLEEP 10 BANNED 00000000");
                } else if text != "?"
                    && let Ok(mut list) = list.lock()
                {
                    // Who only looks whether it listens knocks.
                    list.push(text);
                }
            }
        });
        Ok(StandIn(told))
    }

    fn last(&self) -> String {
        self.0.lock().ok().and_then(|list| list.last().cloned()).unwrap_or_default()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = fs::remove_file(IRQBALANCE);
    }
}
