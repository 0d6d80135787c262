// SPDX-License-Identifier: GPL-2.0-only
//! Random hosts on which nothing may go wrong. A host that does is run again by its seed:
//! `OVERBOOK_FUZZ=SEED..SEED cargo test -p overbook-tunnel --release --test fuzz`.

use overbook_tunnel::fuzz::{self, Bound, LENGTH_NS, RARE_NS, Unfair, unfair};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Says what is wrong on hosts of so many seeds, or those of a variable of the environment, and on how many hosts it looked.
fn wrong_of(variable: &str, seeds: u64, look: impl Fn(u64) -> Vec<String> + Sync) -> (Vec<String>, u64) {
    let range = std::env::var(variable).unwrap_or_else(|_| format!("1..{}", seeds + 1));
    let ends =
        range.split_once("..").and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
    let (first, end) = ends.filter(|(first, end)| first < end).unwrap_or_else(|| {
        panic!("{variable} is seeds from one up to but not with another: 5..6 is the fifth")
    });
    let next = AtomicU64::new(first);
    let work = || {
        let mut wrong = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return wrong;
            }
            let said = look(seed);
            if !said.is_empty() {
                wrong.push(format!("seed {seed}: {}", said.join("; ")));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    (wrong, end - first)
}

#[test]
fn nothing_goes_wrong_on_random_hosts() {
    let look = |seed| fuzz::run(seed, None).unwrap().lines();
    let (wrong, hosts) = wrong_of("OVERBOOK_FUZZ", 2000, look);
    // What one host takes goes with it.
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    assert!(pages < 16 << (30 - 12), "{pages} pages are left");
    assert!(wrong.is_empty(), "{} hosts of {hosts}:\n{}", wrong.len(), wrong.join("\n"));
}

/// `OVERBOOK_RARE=SEED..SEED` has others.
#[test]
fn what_happens_seldom_does_no_harm() {
    let look = |seed| fuzz::rare(seed, None).unwrap().lines();
    let (wrong, hosts) = wrong_of("OVERBOOK_RARE", 1000, look);
    assert!(wrong.is_empty(), "{} hosts of {hosts}:\n{}", wrong.len(), wrong.join("\n"));
}

fn words((name, had, due): Unfair) -> String {
    format!("{name} has {had:.3} CPUs where {due:.3} are due")
}

/// `OVERBOOK_UNFAIR=SEED..SEED` has others.
#[test]
fn shares_are_due_on_random_hosts() {
    let look = |seed| unfair(seed, Bound::Apart, 1, None).unwrap().into_iter().map(words).collect();
    let (wrong, hosts) = wrong_of("OVERBOOK_UNFAIR", 300, look);
    assert!(wrong.is_empty(), "{} hosts of {hosts}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Looks at 300 hosts, or those of a variable of the environment. On one of so many shares may be off, and nobody may have
/// less than this part of what is due.
fn nobody_starves(variable: &str, bound: Bound, llcs: u32, one_in: u64, part: f64) {
    let starved = Mutex::new(Vec::new());
    let look = |seed| {
        let all = unfair(seed, bound, llcs, None).unwrap();
        let few = all.iter().filter(|(_, had, due)| *had < due * part - 0.01).cloned();
        starved.lock().unwrap().extend(few.map(|who| format!("seed {seed}: {}", words(who))));
        all.into_iter().map(words).collect()
    };
    let (off, hosts) = wrong_of(variable, 300, look);
    println!("{} of {hosts} hosts:\n{}", off.len(), off.join("\n"));
    let starved = starved.into_inner().unwrap();
    assert!(starved.is_empty(), "{}", starved.join("\n"));
    assert!(off.len() as u64 * one_in < hosts.max(one_in), "{} of {hosts} hosts", off.len());
}

/// Where some may run anywhere beside others that may not, shares are a matter of where the first do run.
/// `OVERBOOK_FLOATS=SEED..SEED` has others.
#[test]
fn nobody_starves_beside_who_may_run_anywhere() {
    nobody_starves("OVERBOOK_FLOATS", Bound::ApartOrAny, 1, 100, 0.5);
    nobody_starves("OVERBOOK_FLOATS", Bound::ApartOrAny, 2, 25, 0.4);
}

/// LLCs have an order of their own each, and are compared now and then. `OVERBOOK_LLCS=SEED..SEED` has others.
#[test]
fn shares_are_due_on_random_hosts_of_some_llcs() {
    nobody_starves("OVERBOOK_LLCS", Bound::Apart, 2, 100, 0.5);
    nobody_starves("OVERBOOK_LLCS", Bound::Apart, 4, 50, 0.5);
}

/// Below a `cpu.max` as beside it. `OVERBOOK_QUOTAS=SEED..SEED` has others.
#[test]
fn shares_are_due_below_quotas() {
    nobody_starves("OVERBOOK_QUOTAS", Bound::Limited, 1, 50, 0.5);
    nobody_starves("OVERBOOK_QUOTAS", Bound::Limited, 2, 50, 0.5);
}

/// Sets with some CPUs in common are brought near to the tide each, and what one is behind another is lost.
/// `OVERBOOK_OVERLAPS=SEED..SEED` has others.
#[test]
fn nobody_starves_where_sets_of_cpus_overlap() {
    nobody_starves("OVERBOOK_OVERLAPS", Bound::Overlapping, 1, 8, 0.25);
}

/// Hosts that went wrong once: CPUs idled beside SCHED_IDLE tasks, tasks without a state, and who was queued as they went idle.
const MENDED: [u64; 7] = [1635, 6389, 8726, 9855, 13712, 31846, 62132];

/// The same, of those to which seldom things happen: CPUs idled beside who waited for them, as another CPU had taken the first
/// of all queues, and as they had regained preference.
const MENDED_RARE: [u64; 5] = [21, 962, 7460, 11185, 12418];

#[test]
fn what_was_mended_stays_so() {
    let often = MENDED.map(|seed| (seed, fuzz::run(seed, None).unwrap()));
    let rare = MENDED_RARE.map(|seed| (seed, fuzz::rare(seed, None).unwrap()));
    for (seed, findings) in often.into_iter().chain(rare) {
        assert!(findings.is_empty(), "seed {seed}: {}", findings.lines().join("; "));
    }
}

/// Prints what happens on one host: `OVERBOOK_TRACE=SEED cargo test … one_host -- --nocapture`. `OVERBOOK_TRACE_RARE` is of
/// those to which seldom things happen.
#[test]
fn one_host() {
    let of = |variable| std::env::var(variable).ok().and_then(|seed| seed.parse().ok());
    let (mut world, length) = match (of("OVERBOOK_TRACE"), of("OVERBOOK_TRACE_RARE")) {
        (Some(seed), _) => (fuzz::world(seed, None, 0..LENGTH_NS).unwrap(), LENGTH_NS),
        (_, Some(seed)) => (fuzz::rare_world(seed, None, 0..RARE_NS).unwrap(), RARE_NS),
        _ => return,
    };
    world.run(length);
    world.trace.lines.iter().for_each(|line| println!("{line}"));
    world.report().findings.lines().iter().for_each(|line| println!("{line}"));
}
