// SPDX-License-Identifier: GPL-2.0-only
//! Short spins: who waits for somebody who runs is left alone, and nobody spins on for long.

mod common;

use common::cases;
use overbook_policy::spin::{APART, EXITS, Spin, TRIAL, TRUST};
use proptest::prelude::*;

const LIMIT: u64 = 30_000;
const MS: u64 = 1_000_000;

/// A vCPU comes to its CPU and spins, with KVM's doubling window, until it is taken off; ns that it has spun.
fn spins_for(spin: &mut Spin, resumed: u64, mut window: u64) -> u64 {
    let mut now = resumed;
    loop {
        now += window;
        window *= 2;
        spin.exit(resumed, now, LIMIT);
        if !spin.is_spared(LIMIT) {
            spin.leave(now, LIMIT);
            return now - resumed;
        }
    }
}

#[test]
fn the_headers_examples() {
    assert_eq!(spins_for(&mut Spin::default(), 1, 1_500), 46_500);
    assert_eq!(spins_for(&mut Spin::default(), 1, 40_000), 120_000);
    let mut spin = Spin::default();
    let at_barriers: Vec<bool> = (1..40).map(|nth| spins_for(&mut spin, nth * MS, 1_500) > 1_500).collect();
    let spared = |spins: &[bool]| spins.iter().filter(|spared| **spared).count();
    assert!(spin.are_long() && !Spin::default().are_long());
    assert_eq!(spared(&at_barriers[..TRUST as usize]), TRUST as usize);
    assert_eq!(spared(&at_barriers[TRUST as usize..][..3 * TRIAL as usize]), 3);
}

#[test]
fn spins_that_end_are_left_alone() {
    let mut spin = Spin::default();
    for turn in 1..100 {
        let mut now = turn * 100 * MS;
        let resumed = now;
        for nth in 0..EXITS {
            now += u64::from(APART) * LIMIT + 1;
            spin.exit(resumed, now, LIMIT);
            // By the last the window is so long that a spin which exits is long.
            assert_eq!(spin.is_spared(LIMIT), nth + 1 < EXITS, "turn {turn}, exit {nth}");
        }
        spin.leave(now + MS, LIMIT);
    }
}

#[test]
fn whose_spins_become_short_is_trusted_again() {
    let mut spin = Spin::default();
    for nth in 1..100 {
        spins_for(&mut spin, nth * MS, 1_500);
    }
    let mut now = 1000 * MS;
    let spared = (0..100).map(|_| {
        now += 2 * MS;
        spin.exit(now, now + 1_500, LIMIT);
        let spared = spin.is_spared(LIMIT);
        spin.leave(now + MS, LIMIT);
        spared
    });
    assert!(spared.skip(5 * TRIAL as usize).all(|spared| spared));
}

/// Nobody takes it off, as no sibling is queued: its window comes to be longer than what tells two spins apart.
#[test]
fn one_spin_that_goes_on_is_not_two_short_ones() {
    for window in [1_500, 20_000, 40_000] {
        let mut spin = Spin::default();
        for nth in 1..=u64::from(TRUST) {
            let (resumed, before) = (nth * 1000 * MS, spin.distrust);
            let exits = (1..=EXITS).map(|exit| resumed + (window << exit));
            let mut long = false;
            for now in exits {
                spin.exit(resumed, now, LIMIT);
                long = spin.was_long();
                if !long {
                    spin.is_spared(LIMIT);
                }
            }
            assert!(long, "the sixth exit says so");
            spin.leave(resumed + (window << EXITS) + MS, LIMIT);
            assert!(spin.distrust > before, "{window}: {spin:?}");
        }
        assert!(spin.are_long());
    }
}

#[test]
fn who_leaves_amid_a_spin_says_nothing() {
    let mut spin = Spin { distrust: 2, ..Spin::default() };
    spin.exit(0, 1_500, LIMIT);
    assert!(spin.is_spared(LIMIT));
    spin.leave(3_000, LIMIT);
    spin.exit(10 * MS, 10 * MS + 1_500, LIMIT);
    assert_eq!((spin.distrust, spin.exits, spin.since), (2, 1, 10 * MS + 1_500));
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// Whatever the window and whatever was before, a spin is spared until the limit and one window more, and no more
    /// often than there are exits.
    #[test]
    fn nobody_spins_on_for_long(
        first in 100u64..2_000_000,
        before in prop::collection::vec((1u64..10_000_000, any::<bool>()), 0..30),
        resumed in any::<u64>(),
    ) {
        let (mut spin, mut now) = (Spin::default(), resumed);
        for (gap, heard) in before {
            now = now.wrapping_add(gap);
            spin.exit(resumed, now, LIMIT);
            match heard {
                true => spin.is_spared(LIMIT),
                false => spin.was_long(),
            };
        }
        let (start, mut window) = (now, first);
        for nth in 1.. {
            now = now.wrapping_add(window);
            spin.exit(resumed, now, LIMIT);
            if !spin.is_spared(LIMIT) {
                break;
            }
            prop_assert!(nth < EXITS);
            // As long as the exits can be of one spin.
            if window <= u64::from(APART) * LIMIT {
                prop_assert!(now.wrapping_sub(start) < LIMIT + 2 * first.max(LIMIT));
            }
            window *= 2;
        }
        prop_assert!(spin.distrust <= 2 * TRUST as u16);
    }
}
