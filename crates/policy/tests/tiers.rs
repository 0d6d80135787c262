// SPDX-License-Identifier: GPL-2.0-only
//! The order of usefulness: what the bitmaps say of 64 vCPUs is what one by one each of them is.

mod common;

use common::cases;
use overbook_policy::tiers::*;
use proptest::prelude::*;

/// All tiers but none, the highest first.
const ORDER: [u32; 5] = [ANSWERED, INTERRUPT, ANY, CHAINED, WAITING];

/// Sparse and dense words: with random bits alone the lower tiers would never be the best.
fn word() -> impl Strategy<Value = u64> {
    let sparse = prop::collection::vec(0u32..64, 0..4)
        .prop_map(|bits| bits.iter().fold(0, |word, bit| word | 1u64 << bit));
    prop_oneof![Just(0), any::<u64>(), sparse]
}

fn siblings() -> impl Strategy<Value = Siblings> {
    (word(), word(), word(), word()).prop_map(|(at_work, waiting, interrupted, answered)| Siblings {
        at_work,
        waiting: waiting & !at_work,
        interrupted,
        answered,
    })
}

/// The tiers that one vCPU is of, by what is known of it.
fn tiers_of(s: &Siblings, vcpu: u32) -> Vec<u32> {
    let is = |word: u64| word >> vcpu & 1 == 1;
    let useful = is(s.answered) || is(s.interrupted);
    let of = |tier: &u32| match *tier {
        ANSWERED => is(s.at_work) && is(s.answered),
        INTERRUPT => is(s.at_work) && is(s.interrupted),
        ANY => is(s.at_work),
        CHAINED => is(s.waiting) && useful,
        _ => is(s.waiting),
    };
    ORDER.into_iter().filter(of).collect()
}

/// Learns of a vCPU that it has an interrupt to take, or is answered.
fn learn(s: &mut Siblings, reason: usize, vcpu: u32) {
    *[&mut s.interrupted, &mut s.answered][reason] |= 1 << vcpu;
}

proptest! {
    #![proptest_config(cases(50_000))]

    #[test]
    fn members_are_who_the_bits_say(s in siblings()) {
        for vcpu in 0..64 {
            let of = tiers_of(&s, vcpu);
            for tier in ORDER {
                let member = s.members(tier) >> vcpu & 1 == 1;
                prop_assert_eq!(member, of.contains(&tier), "vCPU {} and tier {}", vcpu, tier);
            }
        }
    }

    #[test]
    fn the_best_tier_is_the_highest_that_has_members(s in siblings()) {
        let highest = ORDER.into_iter().find(|tier| s.members(*tier) != 0).unwrap_or(NONE);
        prop_assert_eq!(s.best(), highest);
        prop_assert_eq!(s.best() == NONE, s.at_work | s.waiting == 0, "somebody is queued");
    }

    #[test]
    fn nobody_is_chosen_who_is_not_queued(s in siblings(), tier: u32) {
        for tier in ORDER.into_iter().chain([NONE, OVB_TIERS, tier]) {
            prop_assert_eq!(s.members(tier) & !(s.at_work | s.waiting), 0);
        }
        prop_assert_eq!(s.members(NONE) | s.members(OVB_TIERS), 0);
    }

    #[test]
    fn work_goes_before_waiting(s in siblings()) {
        let best = s.best();
        prop_assert_eq!(best >= ANY, s.at_work != 0);
        if s.at_work != 0 {
            prop_assert_eq!(s.members(best) & s.waiting, 0, "who waits is chosen, and others are at work");
        }
        for tier in [ANY, INTERRUPT, ANSWERED] {
            prop_assert_eq!(s.members(tier) & !s.at_work, 0);
        }
        for tier in [WAITING, CHAINED] {
            prop_assert_eq!(s.members(tier) & !s.waiting, 0);
        }
    }

    /// Everybody who is queued is found by going down the tiers.
    #[test]
    fn everybody_who_is_queued_has_a_tier(s in siblings()) {
        let all = ORDER.into_iter().fold(0, |all, tier| all | s.members(tier));
        prop_assert_eq!(all, s.at_work | s.waiting);
    }

    /// One more reason never makes a vCPU worse, and never moves another.
    #[test]
    fn a_reason_more_is_never_worse(s in siblings(), vcpu in 0u32..64, reason in 0usize..2) {
        let mut more = s;
        learn(&mut more, reason, vcpu);
        prop_assert!(more.best() >= s.best());
        for tier in ORDER {
            let moved = more.members(tier) ^ s.members(tier);
            prop_assert_eq!(moved & !(1 << vcpu), 0);
            prop_assert_eq!(moved & s.members(tier), 0, "a tier is lost");
        }
    }
}

#[test]
fn the_order_is_as_documented() {
    assert!(ORDER.windows(2).all(|pair| pair[0] > pair[1]));
    assert_eq!(OVB_TIERS, ANSWERED + 1);
    assert!(ORDER.iter().all(|tier| *tier > NONE));
}
