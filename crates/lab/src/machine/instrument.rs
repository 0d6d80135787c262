// SPDX-License-Identifier: GPL-2.0-only
//! The instrument measures itself.
//!
//! Two things make an emulated host lie about scheduling. A CPU that idles hands its speed to the others, so
//! that waiting speeds up those who work; and the CPUs do not run side by side but take turns, so that
//! whatever crosses CPUs waits for turns. Both are measured at every boot, with the limits beside them.

use crate::machine::task::{self, now_ns};
use anyhow::Result;
use overbook_report::schema::{Instrument, TurnRow};
use overbook_vmm::{GuestMemory, Load, Pattern, Storm, VmConfig, VmProcess};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Turns of the fixed loop.
const LOOP_TURNS: u64 = 1_000_000;

/// Largest |busy or spinning ÷ idle − 1| of the fixed loop.
const SKEW_LIMIT_PERCENT: f64 = 3.0;

/// Bound on the worst sample of any row. A few slices may go to a kernel thread now and then; a CPU that stands
/// still for longer has been starved by the emulator.
const STARVED_NS: u64 = 100_000_000;

/// Bound on a bare turn: a store on one CPU until another CPU's answer is seen, there and back.
const TURN_LIMIT_NS: u64 = 50_000;

const SAMPLES: usize = 200;

/// First samples of the bare turn, not counted: the answering thread is still on its way.
const WARM_UP: usize = 8;

/// Speed of one CPU.
pub struct Clock {
    /// Time of one turn of the fixed loop while no other normal task runs on the CPU.
    pub ns_per_turn: f64,
}

impl Clock {
    /// Measures the fixed loop.
    ///
    /// # Errors
    /// The clock stands still.
    pub fn calibrate() -> Result<Clock> {
        let best = (0..3).map(|_| fixed_loop_ns()).min().unwrap_or(0);
        anyhow::ensure!(best > 0, "the machine's clock stands still");
        Ok(Clock { ns_per_turn: best as f64 / LOOP_TURNS as f64 })
    }
}

fn fixed_loop_ns() -> u64 {
    let start = now_ns();
    task::turns(LOOP_TURNS);
    now_ns() - start
}

/// Threads of normal priority that keep CPUs busy until dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn on(cpus: &[u32]) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |&cpu: &u32| {
            let stop = stop.clone();
            thread::spawn(move || {
                let _ = task::bind(0, &[cpu]);
                while !stop.load(Ordering::Relaxed) {
                    task::turns(1000);
                }
            })
        };
        let threads = cpus.iter().map(spawn).collect();
        Busy { stop, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A guest whose vCPUs do nothing but PAUSE, and exit each time, on other CPUs until dropped.
struct Spinners {
    _memory: GuestMemory,
    _vm: VmProcess,
}

impl Spinners {
    fn on(cpus: &[u32], clock: &Clock) -> Result<Option<Spinners>> {
        if cpus.is_empty() {
            return Ok(None);
        }
        let load = Load { storms: vec![Storm::Pause], ..Load::new(Pattern::Hostile) };
        let vcpus = cpus.len() as u32;
        let memory = GuestMemory::create(&load, vcpus, 1, clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: "spinners".into(), vcpus, ple: true, memory: memory.path() };
        let mut vm = VmProcess::spawn(&config)?;
        for (tid, cpu) in vm.tids.iter().zip(cpus) {
            task::bind(*tid, &[*cpu])?;
        }
        vm.go()?;
        thread::sleep(Duration::from_millis(20));
        Ok(Some(Spinners { _memory: memory, _vm: vm }))
    }
}

/// Measures the instrument and judges it.
///
/// # Errors
/// Threads cannot be bound to CPUs.
pub fn check(cpus: &[u32], clock: &Clock) -> Result<Instrument> {
    let mut found = Instrument::default();
    let first = cpus[0];
    task::bind(0, &[first])?;
    let others: Vec<u32> = cpus.iter().copied().filter(|c| *c != first).collect();
    found.loop_idle_ns = median((0..5).map(|_| fixed_loop_ns()).collect());
    for &cpu in &others {
        task::bind(0, &[cpu])?;
        let ns = median((0..3).map(|_| fixed_loop_ns()).collect());
        let skew = skew_percent(ns, found.loop_idle_ns);
        if skew > SKEW_LIMIT_PERCENT {
            found.complaints.push(format!(
                "a fixed loop runs {skew:.1} % differently on CPU {cpu} than on CPU {first} (limit \
                 {SKEW_LIMIT_PERCENT} %)"
            ));
        }
    }
    task::bind(0, &[first])?;
    found.loop_busy_ns = {
        let _busy = Busy::on(&others);
        median((0..5).map(|_| fixed_loop_ns()).collect())
    };
    add_spin_row(&mut found, &others, clock)?;
    found.loop_skew_percent = skew_percent(found.loop_busy_ns, found.loop_idle_ns);
    if let Some(&peer) = others.last() {
        let bystanders: Vec<u32> = others.iter().copied().filter(|c| *c != peer).collect();
        for busy in [false, true] {
            let _busy = busy.then(|| Busy::on(&bystanders));
            let what = if busy { "busy" } else { "idle" };
            let row =
                |name: &str, samples, limit_ns| row(format!("{name}, other CPUs {what}"), samples, limit_ns);
            found.turns.push(row("store seen and answered", ping_pong(first, peer)?, TURN_LIMIT_NS));
            found.turns.push(row("wake-up on the same CPU", wake_up(first, first)?, 0));
            found.turns.push(row("wake-up on another CPU", wake_up(first, peer)?, 0));
            found.turns.push(row("IPI round trip (membarrier)", membarrier(first, peer)?, 0));
        }
        add_crossing_rows(&mut found);
    }
    task::bind(0, cpus)?;
    judge(&mut found);
    Ok(found)
}

/// The fixed loop beside guests that spin.
fn add_spin_row(found: &mut Instrument, others: &[u32], clock: &Clock) -> Result<()> {
    let spinning_ns = {
        let _guest = Spinners::on(others, clock)?;
        median((0..5).map(|_| fixed_loop_ns()).collect())
    };
    found.turns.push(TurnRow {
        name: "fixed loop while other CPUs spin in guests".into(),
        samples: 5,
        p50_ns: spinning_ns,
        ..TurnRow::default()
    });
    let skew = skew_percent(spinning_ns, found.loop_idle_ns);
    if skew > SKEW_LIMIT_PERCENT {
        found.complaints.push(format!(
            "a fixed loop runs {skew:.1} % differently when guests spin on other CPUs (limit \
             {SKEW_LIMIT_PERCENT} %)"
        ));
    }
    Ok(())
}

/// What crossing CPUs adds to a wake-up: the part that an emulator can falsify.
fn add_crossing_rows(found: &mut Instrument) {
    for what in ["idle", "busy"] {
        let median_of = |name: &str| {
            let name = format!("{name}, other CPUs {what}");
            found.turns.iter().find(|row| row.name == name).map_or(0, |row| row.p50_ns)
        };
        let added = median_of("wake-up on another CPU").saturating_sub(median_of("wake-up on the same CPU"));
        found.turns.push(TurnRow {
            name: format!("added to a wake-up by crossing, other CPUs {what}"),
            samples: SAMPLES as u64,
            p50_ns: added,
            p99_ns: added,
            max_ns: added,
            limit_ns: TURN_LIMIT_NS,
        });
    }
}

fn skew_percent(ns: u64, idle_ns: u64) -> f64 {
    (ns as f64 / idle_ns.max(1) as f64 - 1.0).abs() * 100.0
}

fn judge(found: &mut Instrument) {
    if found.loop_skew_percent > SKEW_LIMIT_PERCENT {
        found.complaints.push(format!(
            "a fixed loop runs {:.1} % differently when other CPUs are busy (limit {SKEW_LIMIT_PERCENT} %)",
            found.loop_skew_percent
        ));
    }
    for row in &found.turns {
        if row.max_ns > STARVED_NS {
            found.complaints.push(format!(
                "{}: one took {:.1} ms, so a CPU was starved",
                row.name,
                row.max_ns as f64 / 1e6
            ));
        } else if row.limit_ns > 0 && row.p50_ns > row.limit_ns {
            found.complaints.push(format!(
                "{}: median {:.1} µs exceeds {:.1} µs",
                row.name,
                row.p50_ns as f64 / 1000.0,
                row.limit_ns as f64 / 1000.0
            ));
        }
    }
    found.ok = found.complaints.is_empty();
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn row(name: String, mut samples: Vec<u64>, limit_ns: u64) -> TurnRow {
    samples.sort_unstable();
    let at = |q: f64| samples.get(((samples.len() - 1) as f64 * q) as usize).copied().unwrap_or(0);
    TurnRow {
        name,
        samples: samples.len() as u64,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: at(1.0),
        limit_ns,
    }
}

/// Two threads on two CPUs hand a word to and fro, without the kernel.
fn ping_pong(here: u32, there: u32) -> Result<Vec<u64>> {
    let word = Arc::new(AtomicU32::new(0));
    let answering = {
        let word = word.clone();
        thread::spawn(move || {
            let _ = task::bind(0, &[there]);
            for round in 0..(WARM_UP + SAMPLES) as u32 {
                while word.load(Ordering::Acquire) != 2 * round + 1 {}
                word.store(2 * round + 2, Ordering::Release);
            }
        })
    };
    task::bind(0, &[here])?;
    let mut samples = Vec::with_capacity(WARM_UP + SAMPLES);
    for round in 0..(WARM_UP + SAMPLES) as u32 {
        // Not in step with ticks.
        task::turns(50 + u64::from(round) * 7);
        let start = now_ns();
        word.store(2 * round + 1, Ordering::Release);
        while word.load(Ordering::Acquire) != 2 * round + 2 {}
        samples.push(now_ns() - start);
    }
    let _ = answering.join();
    Ok(samples.split_off(WARM_UP))
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word outlives the call, and neither operation writes to it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, 0, 0, 0)
    };
}

/// One-way latency of a futex wake-up from `here` to a sleeper on `there`.
fn wake_up(here: u32, there: u32) -> Result<Vec<u64>> {
    let word = Arc::new(AtomicU32::new(0));
    let woken_at = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let (word, woken_at) = (word.clone(), woken_at.clone());
        thread::spawn(move || {
            let _ = task::bind(0, &[there]);
            for round in 0..SAMPLES as u32 {
                while word.load(Ordering::Acquire) == round {
                    futex(&word, libc::FUTEX_WAIT, round);
                }
                woken_at.store(now_ns(), Ordering::Release);
            }
        })
    };
    task::bind(0, &[here])?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for round in 0..SAMPLES as u32 {
        // Long enough for the sleeper to sleep, and not in step with ticks.
        thread::sleep(Duration::from_micros(900 + u64::from(round) * 3));
        woken_at.store(0, Ordering::Release);
        let start = now_ns();
        word.store(round + 1, Ordering::Release);
        futex(&word, libc::FUTEX_WAKE, 1);
        let mut seen = 0;
        while seen == 0 {
            // On one CPU the sleeper runs only when this thread lets it.
            if here == there {
                thread::yield_now();
            }
            seen = woken_at.load(Ordering::Acquire);
        }
        samples.push(seen.saturating_sub(start));
    }
    let _ = sleeper.join();
    Ok(samples)
}

/// An expedited membarrier sends an IPI to the CPU on which another thread of this process runs, and waits
/// until it was handled.
fn membarrier(here: u32, there: u32) -> Result<Vec<u64>> {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    let call = |command: i32| {
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    };
    task::bind(0, &[here])?;
    anyhow::ensure!(call(REGISTER_PRIVATE_EXPEDITED) == 0, "the kernel has no expedited membarrier");
    let _peer = Busy::on(&[there]);
    thread::sleep(std::time::Duration::from_millis(5));
    let mut samples = Vec::with_capacity(SAMPLES);
    for round in 0..SAMPLES as u64 {
        task::turns(50 + round * 7);
        let start = now_ns();
        call(PRIVATE_EXPEDITED);
        samples.push(now_ns() - start);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_quantiles() {
        let row = row("x".into(), (1..=100).rev().collect(), 5);
        assert_eq!((row.samples, row.p50_ns, row.p99_ns, row.max_ns), (100, 50, 99, 100));
    }

    #[test]
    fn figures_beyond_limits_are_named() {
        let slow = TurnRow { name: "slow".into(), p50_ns: 2, limit_ns: 1, ..TurnRow::default() };
        let mut found = Instrument { loop_skew_percent: 5.0, turns: vec![slow], ..Instrument::default() };
        judge(&mut found);
        assert!(!found.ok);
        assert_eq!(found.complaints.len(), 2);
        let starved = TurnRow { p50_ns: 1, max_ns: 2_000_000_000, limit_ns: 2, ..TurnRow::default() };
        let mut found = Instrument { turns: vec![starved], ..Instrument::default() };
        judge(&mut found);
        assert!(found.complaints[0].contains("starved"));
        let mut fine = Instrument::default();
        judge(&mut fine);
        assert!(fine.ok);
    }
}
