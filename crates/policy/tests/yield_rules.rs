// SPDX-License-Identifier: GPL-2.0-only
//! What the yield rules promise: bounded shifts, no gain from yielding, a VM's total conserved, wrap safety.
//! PROPTEST_CASES raises the number of cases; `PROPTEST_CASES=1000000` takes some seconds.

use overbook_policy::*;
use proptest::prelude::*;

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    ProptestConfig::with_cases(cases)
}

fn slice() -> impl Strategy<Value = u64> {
    100_000u64..1_000_000_000
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn forfeit_moves_forward_by_a_slice_at_most(now: u64, lag in -(1i64 << 40)..1i64 << 40, slice in slice()) {
        let vtime = now.wrapping_sub(lag as u64);
        let mut place = Place { vtime, deadline: vtime.wrapping_add(slice) };
        let moved = forfeit(&mut place, now, slice);
        prop_assert_eq!(moved, lag >= 0);
        let shift = place.vtime.wrapping_sub(vtime);
        prop_assert_eq!(shift, if moved { slice } else { 0 });
        prop_assert_eq!(place.deadline.wrapping_sub(place.vtime), slice);
    }

    #[test]
    fn credit_never_exceeds_a_slice_of_lag(now: u64, ahead in -(1i64 << 40)..1i64 << 40, slice in slice(), n in 0u32..10_000) {
        let vtime = now.wrapping_add(ahead as u64);
        let credited = credit(vtime, now, slice, n);
        // Never later than before, and never more than a slice of lag that was not there.
        prop_assert!(!vtime_before(vtime, credited));
        if ahead <= 0 {
            prop_assert_eq!(credited, vtime);
        } else {
            let lag = now.wrapping_sub(credited);
            prop_assert!((1..=slice).contains(&lag));
        }
    }

    #[test]
    fn credit_grows_with_the_queue(slice in slice(), a in 0u32..1000, b in 0u32..1000) {
        prop_assert!(credit_margin(slice, a.min(b)) <= credit_margin(slice, a.max(b)));
    }

    #[test]
    fn strict_is_the_least_shift_that_the_target_wins_by(yielder: u64, ahead in -(1i64 << 40)..1i64 << 40, gran in 0u64..1 << 32) {
        let target = yielder.wrapping_add(ahead as u64);
        let moved = strict(yielder, target, gran);
        prop_assert!(!vtime_before(moved, yielder));
        prop_assert!(strict_accepts(target, moved, gran));
        if moved != yielder {
            prop_assert!(!strict_accepts(target, moved.wrapping_sub(1), gran), "less would have done");
            prop_assert!(vtime_before(moved, target) || gran == 0);
        }
    }

    #[test]
    fn grants_are_within_bounds_and_bills_add_up(
        left: u64, least in 0u64..1 << 40, more in 0u64..1 << 40, used: u64, aside in 0u32..2,
    ) {
        let slice = least + more;
        let grant = handoff_grant(left, least, slice, 0);
        prop_assert!(least <= grant && grant <= slice);
        prop_assert_eq!(handoff_grant(left, least, slice, 1), if left < least { 0 } else { grant });
        let price = handoff_price(grant, least, aside);
        prop_assert_eq!(price, if aside == 1 { grant.min(least) } else { grant });
        let bill = handoff_settle(price, used);
        prop_assert_eq!(bill.donor + bill.refund, price);
        prop_assert_eq!(bill.donor + bill.own, used);
    }

    /// Any chain of hand-offs among the vCPUs of a VM: what the VM is charged is what it ran.
    #[test]
    fn a_vm_gains_nothing_by_handing_off(
        steps in prop::collection::vec((0usize..6, 0usize..6, 0u64..8_000_000, 0u64..8_000_000, 0u32..2), 1..60),
        start: u64,
    ) {
        const LEAST: u64 = 500_000;
        const SLICE: u64 = 3_000_000;
        let mut vtime = [start; 6];
        let mut ran = 0u64;
        for (from, to, left, used, aside) in steps {
            if from == to {
                continue;
            }
            let price = handoff_price(handoff_grant(left, LEAST, SLICE, 0), LEAST, aside);
            vtime[from] = vtime[from].wrapping_add(price);
            let bill = handoff_settle(price, used);
            vtime[to] = vtime[to].wrapping_add(bill.own);
            vtime[from] = vtime[from].wrapping_sub(bill.refund);
            ran += used;
        }
        let charged = vtime.iter().fold(0u64, |sum, v| sum.wrapping_add(v.wrapping_sub(start)));
        prop_assert_eq!(charged, ran);
    }

    /// Two siblings that yield to each other by turns, however often: the queues are asked within a turn and a grant.
    #[test]
    fn a_chain_of_hand_offs_ends(ran in prop::collection::vec(0u64..4_000_000, 1..200)) {
        const LEAST: u64 = 500_000;
        const SLICE: u64 = 3_000_000;
        let (mut turn, mut overtime, mut since) = (SLICE, 0, 0u64);
        for ran in ran {
            // Nobody runs beyond his turn.
            let ran = ran.min(turn);
            since += ran;
            let left = turn - ran;
            let grant = handoff_grant(left, LEAST, SLICE, overtime);
            if grant == 0 {
                break;
            }
            overtime = handoff_overtime(left, LEAST, overtime);
            turn = grant;
            prop_assert!(since <= SLICE + LEAST, "{since}");
        }
        prop_assert!(since <= SLICE + LEAST, "{since}");
    }

    #[test]
    fn shares_of_a_group_add_up_to_it(effective in 1u32..2_000_000, weights in prop::collection::vec(1u32..=OVB_WEIGHT_MAX, 1..300)) {
        let total: u32 = weights.iter().sum();
        let parts: u64 = weights.iter().map(|w| u64::from(overbook_policy::effective(effective, *w, total))).sum();
        // Every member has at least one unit, and loses at most one and a fraction to rounding.
        let least = u64::from(effective) - u64::from(effective) / 64;
        prop_assert!(parts + weights.len() as u64 >= least, "{} of {}", parts, effective);
        prop_assert!(parts <= u64::from(effective) + u64::from(effective) / 64 + weights.len() as u64);
    }

    #[test]
    fn effective_time_is_below_the_exact_one_by_little(ns in 0u64..1 << 45, weight in 1u32..1 << 21) {
        let exact = u128::from(ns) * u128::from(OVB_EFFECTIVE_NICE_0) / u128::from(weight);
        let got = u128::from(weighted_effective(ns, weight));
        prop_assert!(got <= exact);
        prop_assert!(exact - got <= 2 + exact * u128::from(weight) / (1 << 32));
    }

    #[test]
    fn proportional_penalties_shrink_upwards(slice in slice(), depth in 1u32..=OVB_MAX_LEVELS, weight in 1u32..=OVB_WEIGHT_MAX, rivals in 0u32..10_000_000) {
        let mut chain = Chain { depth, ..Chain::default() };
        for level in &mut chain.level {
            (level.weight, level.total_weight) = (weight, weight + rivals);
        }
        let (levels, penalty) = proportional(&chain, &[1; MAX_LEVELS], slice);
        prop_assert!(levels <= depth as usize && penalty[0] == 0);
        let own = weighted(slice, weight);
        for (i, shift) in penalty[..levels].iter().enumerate().skip(1) {
            prop_assert!(*shift <= own, "more than a slice");
            prop_assert!(i < 2 || *shift <= penalty[i - 1]);
        }
    }
}

#[test]
fn shares_are_fractions() {
    assert_eq!(share(1024, 1024), OVB_SHARE_ONE);
    assert_eq!(share(1024, 4096), OVB_SHARE_ONE / 4);
    assert_eq!(share(5, 0), OVB_SHARE_ONE);
    assert_eq!(share(1 << 20, u32::MAX), OVB_SHARE_ONE >> 12);
}
