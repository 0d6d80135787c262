// SPDX-License-Identifier: GPL-2.0-only
//! What a VM could have: all of what is left, by weight, and never more than is there.

mod common;

use common::cases;
use overbook_policy::entitle::{Claim, OVB_ENTITLE_ONE as ONE, entitled, entitled_cores, full, packs};
use proptest::prelude::*;

#[test]
fn the_example_of_the_header() {
    let mut others = [Claim::new(1024, 2 * ONE), Claim::new(1024, ONE / 2)];
    let could = entitled(&mut others, 1024, 4 * ONE, 4 * ONE);
    assert!(could.abs_diff(17_500) <= 1, "{could}");
}

#[test]
fn who_is_alone_has_all_that_it_can_use() {
    assert_eq!(entitled(&mut [], 100, 4 * ONE, 8 * ONE), 4 * ONE);
    assert!(entitled(&mut [], 100, 8 * ONE, 4 * ONE).abs_diff(4 * ONE) <= 2);
    assert!(entitled(&mut [Claim::new(100, 0)], 100, 8 * ONE, 4 * ONE).abs_diff(4 * ONE) <= 2);
}

#[test]
fn cores_follow_what_is_told() {
    for (cpus, per_core, now, expected) in [
        (20_500, 1, 2, 2),
        (20_500, 1, 3, 2),
        (21_000, 1, 2, 2),
        (21_000, 1, 3, 3),
        (22_000, 1, 2, 3),
        (40_000, 1, 2, 4),
        (13_333, 1, 4, 2),
        (5_000, 1, 4, 1),
        (0, 1, 4, 0),
        (20_000, 2, 4, 1),
        (22_000, 2, 1, 2),
    ] {
        assert_eq!(entitled_cores(cpus, per_core, now), expected, "{cpus}, {per_core}, {now}");
    }
}

#[test]
fn who_wants_no_more_than_it_can_have_does_not_pack() {
    for (wants, packed, expected) in [
        (19_000, false, false),
        (22_000, false, false),
        (23_000, false, true),
        (23_000, true, true),
        (15_000, true, true),
        (14_900, true, false),
        (0, false, false),
    ] {
        assert_eq!(packs(wants, 20_000, packed), expected, "{wants}, {packed}");
    }
}

/// The same by halving: the level at which all that is poured in has gone.
fn level(others: &[Claim], weight: u32, most: u32, capacity: u32) -> f64 {
    let taken = |level: f64| {
        let of = |weight: u32, wants: u32| (level * f64::from(weight)).min(f64::from(wants));
        of(weight, u32::MAX) + others.iter().map(|claim| of(claim.weight, claim.wants)).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, f64::from(capacity) + 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if taken(middle) < f64::from(capacity) { low = middle } else { high = middle }
    }
    (low * f64::from(weight)).min(f64::from(most))
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn shares_are_those_of_vessels_that_fill_up(
        claims in prop::collection::vec((1u32..1 << 20, 0u32..64 * ONE), 0..40),
        weight in 1u32..1 << 20,
        cpus in 1u32..256,
        vcpus in 1u32..256,
    ) {
        let mut others: Vec<Claim> = claims.iter().map(|(weight, wants)| Claim::new(*weight, *wants)).collect();
        let could = entitled(&mut others, weight, vcpus * ONE, cpus * ONE);
        let exact = level(&others, weight, vcpus * ONE, cpus * ONE);
        prop_assert!((f64::from(could) - exact).abs() <= 2.0 + exact / 20_000.0, "{} and not {}", could, exact);
    }

    /// No CPU is told that would not be used, but for a little, and nothing flaps.
    #[test]
    fn cores_hold_what_is_told(cpus in 0u32..64 * ONE, per_core in 1u32..8, now in 1u32..64) {
        let cores = entitled_cores(cpus, per_core, now);
        prop_assert!(cores * per_core * ONE + ONE / 8 >= cpus);
        prop_assert!(cores == 0 || (cores - 1) * per_core * ONE < cpus);
        prop_assert_eq!(entitled_cores(cpus, per_core, cores.max(1)).max(1), cores.max(1));
    }

    /// Nothing flaps: who packs, and then has all that it could have, goes on; who stops wants a quarter less.
    #[test]
    fn packing_lasts_while_all_is_used(wants in 0u32..64 * ONE, could in 0u32..64 * ONE) {
        if packs(wants, could, false) {
            prop_assert!(packs(wants.min(could), could, true));
        }
        if !packs(wants, could, true) {
            prop_assert!(!packs(wants, could, false));
        }
    }

    /// What is full stays so at the same idle time, and more idle time does not fill it.
    #[test]
    fn full_is_full(idle in 0u32..64 * ONE, more in 0u32..64 * ONE, cpus in 1u32..64 * ONE) {
        prop_assert!(!full(idle, cpus, false) || full(idle, cpus, true));
        for was in [false, true] {
            prop_assert!(!full(idle + more, cpus, was) || full(idle, cpus, was));
        }
        prop_assert!(full(0, cpus, false) && !full(cpus, cpus, true));
    }

    /// Others that want more leave no more.
    #[test]
    fn more_wants_leave_less(
        claims in prop::collection::vec((1u32..1 << 20, 0u32..8 * ONE), 1..10),
        more in 0u32..8 * ONE,
        weight in 1u32..1 << 20,
    ) {
        let mut others: Vec<Claim> = claims.iter().map(|(weight, wants)| Claim::new(*weight, *wants)).collect();
        let before = entitled(&mut others, weight, 8 * ONE, 8 * ONE);
        others[0].wants += more;
        prop_assert!(entitled(&mut others, weight, 8 * ONE, 8 * ONE) <= before + 2);
    }
}
