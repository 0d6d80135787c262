// SPDX-License-Identifier: GPL-2.0-only
//! The steal monitor: bounds, replay, rest on constant input, recovery, and that a guest does not lose by asking for
//! less, on two models of a host.

use overbook_policy::steal::{
    Core, PROPORTIONAL, Rules, STEP, Sample, State, core_to_add, core_to_drop, ratio,
};
use proptest::prelude::*;

const PERIOD: u64 = 1_000_000_000;

fn rules(governor: u32) -> Rules {
    Rules { governor, low: 200, high: 500, agree: 2, quiet: 5, floor: 1 }
}

fn sample(cpus: u32, preferred: u32, run: f64, steal: f64) -> Sample {
    let ns = |cpus: f64| (cpus * PERIOD as f64) as u64;
    Sample { elapsed_ns: PERIOD, run_ns: ns(run), steal_ns: ns(steal), cpus, preferred }
}

/// A host that gives a guest with n busy vCPUs so many CPUs.
trait Host: Fn(u32) -> f64 {}
impl<F: Fn(u32) -> f64> Host for F {}

/// Every VM has a group: the share does not depend on the vCPUs.
fn by_vm(share: f64) -> impl Host {
    move |n| share.min(f64::from(n))
}

/// All vCPUs in one group, with `others` busy ones of neighbours.
fn by_vcpu(cpus: f64, others: f64) -> impl Host {
    move |n| f64::from(n) * (cpus / (f64::from(n) + others)).min(1.0)
}

/// A busy guest under a governor: cores after every period, and CPU time in all.
fn live(governor: u32, all: u32, periods: usize, host: impl Host) -> (Vec<u32>, f64) {
    let (mut state, mut cores, mut got) = (State::default(), all, 0.0);
    let mut sizes = Vec::new();
    for _ in 0..periods {
        let run = host(cores);
        got += run;
        let now = sample(all, cores, run, f64::from(cores) - run);
        cores = state.decide(&rules(governor), &now, cores, all);
        sizes.push(cores);
    }
    (sizes, got)
}

fn changes(sizes: &[u32]) -> usize {
    sizes.windows(2).filter(|w| w[0] != w[1]).count()
}

#[test]
fn the_right_size_is_reached_at_once_and_left_alone() {
    let (sizes, _) = live(PROPORTIONAL, 16, 600, by_vm(5.0));
    assert_eq!(sizes[..3], [16, 5, 5]);
    // Only trials of one core more leave it, and these become rare.
    assert!(sizes[1..].iter().all(|n| (5..=6).contains(n)), "{sizes:?}");
    assert!(changes(&sizes[1..]) <= 14, "{}", changes(&sizes[1..]));
    assert!(changes(&sizes[300..]) <= 4);
}

#[test]
fn the_published_rule_goes_a_core_at_a_time_and_never_rests() {
    let (sizes, _) = live(STEP, 16, 600, by_vm(5.0));
    assert_eq!(sizes[..6], [16, 15, 15, 14, 14, 13]);
    assert!(changes(&sizes[100..]) > 100);
}

#[test]
fn a_fraction_of_a_cpu_is_not_given_up() {
    let (sizes, _) = live(PROPORTIONAL, 4, 300, by_vm(2.4));
    assert!(sizes[1..].iter().all(|n| *n >= 3), "{sizes:?}");
    assert_eq!(live(STEP, 4, 300, by_vm(2.4)).0.iter().min(), Some(&2));
}

#[test]
fn who_asks_for_less_does_not_lose_where_vms_have_groups() {
    for share in [0.7, 1.0, 1.5, 2.0, 2.4, 3.1, 7.9] {
        let (sizes, got) = live(PROPORTIONAL, 8, 1000, by_vm(share));
        // A sixteenth of a CPU may be given up for cores that are never taken away.
        assert!(got >= 1000.0 * (0.99 * share - 1.0 / 16.0), "{got} of {share} per period: {sizes:?}");
    }
}

#[test]
fn one_sample_may_be_enough() {
    // A host that serves four CPUs, then six.
    let (mut state, mut cores, rules) = (State::default(), 8, Rules { agree: 1, ..rules(PROPORTIONAL) });
    let mut sum = 0;
    for period in 0..400 {
        let run = f64::from(cores).min(if period < 100 { 4.0 } else { 6.0 });
        cores = state.decide(&rules, &sample(8, cores, run, f64::from(cores) - run), cores, 8);
        if period >= 200 {
            sum += cores;
        }
    }
    assert!((1200..1400).contains(&sum), "{sum}");
}

#[test]
fn who_asks_for_less_loses_little_where_vcpus_are_alike() {
    // Two guests of four vCPUs on four CPUs, and one of them cooperates.
    let alone = 1000.0 * by_vcpu(4.0, 4.0)(4);
    let (sizes, got) = live(PROPORTIONAL, 4, 1000, by_vcpu(4.0, 4.0));
    assert!(got >= 0.98 * alone, "{got} of {alone}");
    assert_eq!(sizes.last(), Some(&4));
    // The published rule gives its neighbour most of what it had.
    let (_, got) = live(STEP, 4, 1000, by_vcpu(4.0, 4.0));
    assert!(got < 0.5 * alone, "{got} of {alone}");
}

#[test]
fn a_burst_is_forgotten_soon() {
    let rules = rules(PROPORTIONAL);
    let (mut state, mut cores) = (State::default(), 32);
    for _ in 0..6 {
        let run = f64::from(cores).min(4.0);
        cores = state.decide(&rules, &sample(32, cores, run, f64::from(cores) - run), cores, 32);
    }
    assert_eq!(cores, 4);
    let back = (1..100).find(|_| {
        cores = state.decide(&rules, &sample(32, cores, f64::from(cores), 0.0), cores, 32);
        cores == 32
    });
    assert!(back.is_some_and(|n| n <= 16), "{back:?}");
}

#[test]
fn a_guest_that_idles_at_times_keeps_what_it_wants() {
    // Four CPUs, of which it wants two and a half and gets two: three, then two if that is all it gets.
    let (mut state, mut cores) = (State::default(), 4);
    let mut sizes = Vec::new();
    for _ in 0..10 {
        let stolen = if cores > 2 { 0.5 } else { 0.0 };
        cores = state.decide(&rules(PROPORTIONAL), &sample(4, cores, 2.0, stolen), cores, 4);
        sizes.push(cores);
    }
    assert_eq!(sizes[..8], [4, 3, 3, 3, 3, 2, 2, 2]);
}

#[test]
fn a_guest_that_shrank_while_idle_gets_its_cpus_back_under_load() {
    let rules = rules(PROPORTIONAL);
    let (mut state, mut cores) = (State::default(), 4);
    for _ in 0..20 {
        cores = state.decide(&rules, &sample(4, cores, 0.3, 0.25), cores, 4);
    }
    assert_eq!(cores, 1);
    // All vCPUs alike, with four of a neighbour's on four CPUs.
    let host = by_vcpu(4.0, 4.0);
    let mut got = 0.0;
    for _ in 0..400 {
        let run = host(cores);
        got += run;
        cores = state.decide(&rules, &sample(4, cores, run, f64::from(cores) - run), cores, 4);
    }
    assert!(got >= 0.93 * 400.0 * host(4), "{got}");
}

#[test]
fn an_idle_guest_with_a_little_steal_is_left_alone() {
    // Little is wanted; what is stolen of it is not above the threshold.
    let mut state = State::default();
    for _ in 0..50 {
        let now = sample(8, 8, 0.3, 0.02);
        assert_eq!(state.decide(&rules(PROPORTIONAL), &now, 8, 8), 8);
    }
}

#[test]
fn nodes_keep_their_proportions() {
    let core = |node, keep| Core { node, preferred: 1, keep };
    // Six cores on one node, two on the other; housekeeping on the very first.
    let mut cores: Vec<Core> = (0..8).map(|i| core(u32::from(i >= 6), u32::from(i == 0))).collect();
    let mut order = Vec::new();
    while let Some(place) = core_to_drop(&cores) {
        cores[place].preferred = 0;
        order.push(place);
    }
    assert_eq!(order, [5, 7, 4, 3, 2, 6, 1]);
    let mut back = Vec::new();
    while let Some(place) = core_to_add(&cores) {
        cores[place].preferred = 1;
        back.push(place);
    }
    assert_eq!(back.len(), 7);
    assert_eq!(back[0], 6, "the node with none left comes first");
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (0u32..2, 0u32..2000, 0u32..2000, 1u32..6, 1u32..20, 1u32..6).prop_map(
        |(governor, low, more, agree, quiet, floor)| Rules {
            governor,
            low,
            high: low + more,
            agree,
            quiet,
            floor,
        },
    )
}

proptest! {
    #[test]
    fn ratios_are_exact_enough(part: u32, whole in 1u64..1 << 40, times in 0u64..64) {
        let part = u64::from(part).min(whole) + times * whole;
        let exact = part as f64 * 1e4 / whole as f64;
        prop_assert!((f64::from(ratio(part, whole)) - exact).abs() <= 1.1 + exact / 65536.0);
    }

    #[test]
    fn cores_stay_within_bounds_and_decisions_replay(
        rules in any_rules(),
        all in 1u32..300,
        trace in prop::collection::vec((0u64..4_000_000_000, any::<u64>(), any::<u64>()), 1..80),
    ) {
        let play = || {
            let (mut state, mut cores) = (State::default(), all);
            let mut sizes = Vec::new();
            for (elapsed_ns, run, steal) in &trace {
                let now = Sample {
                    elapsed_ns: *elapsed_ns,
                    run_ns: run % (elapsed_ns * u64::from(all) + 1),
                    steal_ns: steal % (elapsed_ns * u64::from(all) + 1),
                    cpus: all,
                    preferred: cores,
                };
                cores = state.decide(&rules, &now, cores, all);
                sizes.push(cores);
            }
            sizes
        };
        let sizes = play();
        let floor = rules.floor.clamp(1, all);
        prop_assert!(sizes.iter().all(|n| (floor..=all).contains(n)), "{sizes:?}");
        prop_assert_eq!(sizes, play());
    }

    #[test]
    fn without_steal_nothing_changes(governor in 0u32..2, all in 1u32..64, run in 0.0f64..64.0) {
        let mut state = State::default();
        for _ in 0..40 {
            let now = sample(all, all, run.min(f64::from(all)), 0.0);
            prop_assert_eq!(state.decide(&rules(governor), &now, all, all), all);
        }
    }

    #[test]
    fn ours_comes_to_rest_on_any_constant_host(all in 1u32..64, share in 0.2f64..64.0, others in 0.0f64..200.0, flat: bool) {
        let host: Box<dyn Fn(u32) -> f64> =
            if flat { Box::new(by_vcpu(share.max(1.0), others)) } else { Box::new(by_vm(share)) };
        let (sizes, _) = live(PROPORTIONAL, all, 2000, host);
        prop_assert!(changes(&sizes[..1000]) <= 60, "{}", changes(&sizes[..1000]));
        prop_assert!(changes(&sizes[1000..]) <= 12, "{}", changes(&sizes[1000..]));
    }

    /// Tasks that wait for each other never want all CPUs, and are stolen from whatever the size.
    #[test]
    fn ours_comes_to_rest_where_steal_never_ends(all in 1u32..32, run in 0.1f64..0.7, stolen in 0.06f64..0.3) {
        let (mut state, mut cores, mut changes) = (State::default(), all, 0);
        for _ in 0..2000 {
            let n = f64::from(cores);
            let now = state.decide(&rules(PROPORTIONAL), &sample(all, cores, run * n, stolen * n), cores, all);
            changes += usize::from(now != cores);
            cores = now;
        }
        prop_assert!(changes <= 16 * all as usize, "{changes}");
    }

    /// Samples of a fifth of a second differ by a fifth, as seen in Linux guests.
    #[test]
    fn noise_does_not_undo_a_shrink_for_long(seed: u64, all in 2u32..8) {
        let (mut state, mut cores, mut more, mut random) = (State::default(), all, 0, seed | 1);
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let run = (0.8 + 0.4 * (random >> 40) as f64 / (1u64 << 24) as f64).min(f64::from(cores));
            cores = state.decide(&rules(PROPORTIONAL), &sample(all, cores, run, f64::from(cores) - run), cores, all);
            more += cores - 1;
        }
        prop_assert!(f64::from(more) / 1000.0 < 0.3 * f64::from(all - 1), "{more}");
    }

    #[test]
    fn all_cores_come_back(governor in 0u32..2, all in 1u32..64, start in 1u32..64) {
        let (mut state, mut cores) = (State::default(), start.min(all));
        for _ in 0..4 * all + 40 {
            let now = sample(all, cores, f64::from(cores), 0.0);
            cores = state.decide(&rules(governor), &now, cores, all);
        }
        prop_assert_eq!(cores, all);
    }

    #[test]
    fn cores_that_keep_house_never_go(
        raw in prop::collection::vec((0u32..70, any::<bool>(), any::<bool>()), 1..100),
    ) {
        let mut cores: Vec<Core> = raw
            .iter()
            .map(|(node, preferred, keep)| Core {
                node: *node,
                preferred: u32::from(*preferred || *keep),
                keep: u32::from(*keep),
            })
            .collect();
        let kept = cores.iter().filter(|c| c.keep != 0).count();
        while let Some(place) = core_to_drop(&cores) {
            prop_assert!(cores[place].preferred != 0 && cores[place].keep == 0);
            cores[place].preferred = 0;
        }
        prop_assert_eq!(cores.iter().filter(|c| c.preferred != 0).count(), kept);
        while let Some(place) = core_to_add(&cores) {
            prop_assert_eq!(cores[place].preferred, 0);
            cores[place].preferred = 1;
        }
        prop_assert!(cores.iter().all(|c| c.preferred != 0));
    }
}
