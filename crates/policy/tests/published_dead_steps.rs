// SPDX-License-Identifier: GPL-2.0-only
//! One test per step of [debooster-v2] that does nothing, or not what it says: what it does, and what the mended
//! rule does.
//!
//! Two defects need a kernel to be shown and are not here: two clock updates under one lock hold trip the
//! double-clock check, and the promised check for a nonzero slice does not exist.

use overbook_policy::*;

const MS: u64 = 1_000_000;
const GRAN: u64 = 2_800_000;

fn call(now: u64, source: i32, target: i32, gap: u64, nr_queued: u32) -> DeboostCall {
    let (interval, reversal) = (OVB_DEBOOST_INTERVAL_NS.into(), OVB_DEBOOST_REVERSAL_NS.into());
    DeboostCall { now, source, target, gran: GRAN, gap, interval, reversal, nr_queued, valid: 1 }
}

#[test]
fn debounce_never_fires() {
    // The pair is recorded only by calls that pass the 6 ms limit, so the next call that looks is too late.
    for delay in (0..20 * MS).step_by(100_000) {
        let mut state = DeboostState::default();
        deboost_published(&mut state, &call(0, 1, 2, MS, 2));
        let back = deboost_published(&mut state, &call(delay, 2, 1, 3 * MS, 2));
        let without = deboost_penalty_published(GRAN, 3 * MS, 2, false);
        assert!(back == 0 || back == without, "a debounce after {delay} ns");
    }
    // Mended: a reversal is seen although the first call of the pair was itself rate-limited.
    let mut state = DeboostState::default();
    assert!(deboost(&mut state, &call(0, 7, 8, MS, 2)) > 0);
    assert_eq!(deboost(&mut state, &call(6 * MS, 1, 2, MS, 2)), 0);
    let back = deboost(&mut state, &call(6 * MS + 500_000, 2, 1, 3 * MS, 2));
    assert_eq!(back, deboost_penalty(GRAN, 3 * MS, 2, true));
    assert!(back < deboost_penalty(GRAN, 3 * MS, 2, false));
}

#[test]
fn baselines_are_dead() {
    for n in 2..40 {
        assert!(deboost_baseline(GRAN, n) <= GRAN);
        assert_eq!(
            deboost_penalty_published(GRAN, 0, n, false),
            GRAN,
            "zero gap always gives one granularity"
        );
        assert_eq!(deboost_penalty(GRAN, 0, n, false), deboost_baseline(GRAN, n));
    }
    // The published table.
    let sixteenths = |n| deboost_baseline(1 << 20, n) >> 16;
    assert_eq!([2, 3, 4, 6, 7, 8, 9, 12, 13].map(sixteenths), [16, 15, 10, 10, 8, 8, 6, 6, 4]);
}

#[test]
fn deep_queues_ignore_the_gap() {
    assert_eq!(
        deboost_penalty_published(GRAN, 0, 13, false),
        deboost_penalty_published(GRAN, 1 << 40, 13, false)
    );
    assert!(deboost_penalty(GRAN, 0, 13, false) < deboost_penalty(GRAN, GRAN / 4, 13, false));
    assert!(deboost_penalty(GRAN, GRAN / 4, 13, false) < deboost_penalty(GRAN, 1 << 40, 13, false));
}

#[test]
fn net_formula_is_simpler_than_its_steps() {
    // The published caps, in halves of a granularity.
    let halves = |n| deboost_cap(2 << 20, n) >> 20;
    assert_eq!([2, 3, 4, 6, 7, 8, 9, 12, 13].map(halves), [12, 8, 5, 5, 4, 4, 3, 3, 2]);
    for n in 2..20 {
        for gap in [0, 1, 9, 10, 11, MS, 5 * MS, 50 * MS, u64::MAX] {
            let net = GRAN.saturating_add(gap.saturating_add(gap / 10)).min(deboost_cap(GRAN, n));
            assert_eq!(deboost_penalty_published(GRAN, gap, n, false), net, "n {n}, gap {gap}");
        }
    }
}

#[test]
fn stale_yielders_overstate_the_gap() {
    // Step 7 skips accounting because the yielder runs, so its virtual time lacks what it has just run.
    let (target, yielder, unaccounted) = (10 * MS, 8 * MS, 3 * MS);
    assert_eq!(vtime_gap(target, yielder), 2 * MS);
    assert_eq!(vtime_gap(target, yielder + unaccounted), 0, "the target was not behind at all");
}

#[test]
fn failing_calls_use_up_the_limit() {
    let cross_runqueue = DeboostCall { valid: 0, ..call(MS, 1, 2, MS, 3) };
    let good = call(2 * MS, 1, 2, MS, 3);
    let mut state = DeboostState::default();
    assert_eq!(deboost_published(&mut state, &cross_runqueue), 0);
    assert_eq!(deboost_published(&mut state, &good), 0, "locked out for 6 ms by a call that did nothing");
    let mut state = DeboostState::default();
    assert_eq!(deboost(&mut state, &cross_runqueue), 0);
    assert!(deboost(&mut state, &good) > 0);
}

#[test]
fn debounce_would_save_next_to_nothing() {
    for n in 2..20 {
        for gap in [0, MS, 2 * MS, 3 * MS, 10 * MS] {
            let saved = deboost_penalty_published(GRAN, gap, n, false)
                - deboost_penalty_published(GRAN, gap, n, true);
            assert!(saved <= GRAN + gap / 10);
        }
    }
    // Mended: a reversal with no gap pays the baseline, and with a small one the gap.
    assert_eq!(deboost_penalty(GRAN, 0, 2, true), deboost_baseline(GRAN, 2));
    assert_eq!(deboost_penalty(GRAN, 2 * GRAN, 2, true), 2 * GRAN);
}

#[test]
fn plain_comparisons_fail_at_the_wrap() {
    let yielder = u64::MAX - MS;
    let target = yielder.wrapping_add(3 * MS);
    assert!(target < yielder, "an unsigned comparison calls the later one earlier");
    assert_eq!(vtime_gap(target, yielder), 3 * MS);
    assert_eq!(vtime_gap(yielder, target), 0);
}

#[test]
fn sleepers_that_count_shrink_the_cap() {
    // Delayed dequeues are counted as queued: two competitors and two of them halve the cap.
    assert!(deboost_cap(GRAN, 4) * 2 < deboost_cap(GRAN, 2));
}

#[test]
fn a_custom_slice_moves_more_by_forfeit_than_by_the_penalty() {
    // Forfeit moves an eligible yielder to its deadline, a whole custom slice; the penalty may make it
    // ineligible before forfeit looks, and then it moves by the penalty alone.
    let custom_slice = weighted(100 * MS, OVB_WEIGHT_NICE_0);
    assert!(deboost_penalty_published(GRAN, 0, 2, false) < custom_slice);
    assert!(deboost_cap(GRAN, 2) < custom_slice);
}

#[test]
fn lone_tasks_are_left_alone() {
    let mut state = DeboostState::default();
    for n in [0, 1] {
        assert_eq!(deboost(&mut state, &call(MS, 1, 2, MS, n)), 0);
        assert!(ratelimit_open(&state.limit, MS, OVB_DEBOOST_INTERVAL_NS.into()));
    }
}
