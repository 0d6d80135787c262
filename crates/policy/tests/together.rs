// SPDX-License-Identifier: GPL-2.0-only
//! The choice between together and apart: it finds the better way, keeps it, follows a change, and leaves VMs alone
//! that do not spin.

mod common;

use common::{cases, start};
use overbook_policy::together::*;
use proptest::prelude::*;

const PERIOD: u64 = 50_000_000;

/// A VM that runs one CPU and spins a share of it, which depends on the way.
struct Vm {
    way: Together,
    now: u64,
    run: u64,
    spin: u64,
}

impl Vm {
    /// A VM that begins in this way, and has been looked at once, as a period needs its beginning.
    fn new(mode: u32, start: u64) -> Vm {
        let way = Together { mode, ..Together::default() };
        let mut vm = Vm { way, now: start, run: 0, spin: 0 };
        vm.live(1, 0, 0);
        vm
    }

    /// Periods spent together, of `periods`, if it spins so many per mille in each way.
    fn live(&mut self, periods: u32, apart: u64, together: u64) -> u32 {
        (0..periods)
            .map(|_| {
                let before = self.way.mode;
                self.now = self.now.wrapping_add(PERIOD);
                self.run = self.run.wrapping_add(PERIOD);
                self.spin += PERIOD / 1000 * if before == TOGETHER { together } else { apart };
                self.way.step(self.now, self.run, self.spin, PERIOD);
                before
            })
            .sum()
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn the_better_way_is_kept(start in start(), better in 20u64..400, more in 100u64..500, together: bool, mode in 0u32..2) {
        let worse = better + better / 4 + more;
        let mut vm = Vm::new(mode, start);
        let (apart, gang) = if together { (worse, better) } else { (better, worse) };
        vm.live(8, apart, gang);
        let spent = vm.live(160, apart, gang);
        let right = if together { spent } else { 160 - spent };
        // All but the trials, and the way back from each.
        prop_assert!(right >= 160 - 2 * 160 / OVB_TOGETHER_TRIAL - 2, "{right} of 160");
    }

    #[test]
    fn trials_become_rare(start in start(), better in 50u64..200, together: bool, mode in 0u32..2) {
        let (apart, gang) = if together { (3 * better, better) } else { (better, 3 * better) };
        let mut vm = Vm::new(mode, start);
        vm.live(600, apart, gang);
        let spent = vm.live(2560, apart, gang);
        let wrong = if together { 2560 - spent } else { spent };
        prop_assert!(wrong <= 2560 / OVB_TOGETHER_TRIAL_MAX + 1, "{wrong}");
    }

    #[test]
    fn a_change_of_the_guest_is_followed(start in start(), mode in 0u32..2) {
        let mut vm = Vm::new(mode, start);
        vm.live(40, 300, 50);
        prop_assert!(vm.live(20, 300, 50) >= 17);
        vm.live(60, 50, 500);
        prop_assert!(vm.live(40, 50, 500) <= 6);
    }

    /// In whichever way it goes, and however much it would spin in the other.
    #[test]
    fn who_does_not_spin_is_left_alone(start in start(), mode in 0u32..2, here in 0u64..19, there in 0u64..1000) {
        let mut vm = Vm::new(mode, start);
        let (apart, gang) = if mode == TOGETHER { (there, here) } else { (here, there) };
        prop_assert_eq!(vm.live(300, apart, gang), 300 * mode);
        prop_assert_eq!(vm.way.known[(mode ^ 1) as usize], 0);
    }

    /// VMs that have spun are left alone as soon as their mean says that they do not.
    #[test]
    fn who_stops_to_spin_is_left_alone(start in start(), apart in 0u64..1000, gang in 0u64..1000, before in 1u32..100, mode in 0u32..2) {
        let mut vm = Vm::new(mode, start);
        vm.live(before, apart, gang);
        vm.live(12, 0, 0);
        let kept = vm.way.mode;
        prop_assert_eq!(vm.live(600, 0, 0), 600 * kept);
    }

    /// A VM that hardly runs says nothing, whatever it spins.
    #[test]
    fn who_hardly_runs_is_left_alone(start in start(), mode in 0u32..2, ran in prop::collection::vec(0..PERIOD / 4, 1..100)) {
        let mut vm = Vm::new(mode, start);
        for ran in ran {
            vm.run += ran;
            vm.spin += ran;
            vm.now = vm.now.wrapping_add(PERIOD);
            prop_assert_eq!(vm.way.step(vm.now, vm.run, vm.spin, PERIOD), mode == TOGETHER);
        }
        prop_assert_eq!(vm.way.known, [0, 0]);
    }

    #[test]
    fn shares_are_shares(spin: u64, run: u64, bits in 0u32..64) {
        let (spin, run) = (spin >> bits, run >> bits);
        let part = share(spin, run);
        prop_assert!(part <= OVB_TOGETHER_ONE);
        if run > 1 << 20 {
            let exact = (spin as f64 / run as f64).min(1.0) * f64::from(OVB_TOGETHER_ONE);
            prop_assert!((f64::from(part) - exact).abs() < 2.0, "{part} is not {exact}");
        }
    }

    #[test]
    fn a_period_is_not_cut_short(now in start(), run: u64, spin: u64, mode in 0u32..2) {
        let mut way = Together { began_at: now, mode, ..Together::default() };
        prop_assert_eq!(way.step(now.wrapping_add(PERIOD - 1), run, spin, PERIOD), mode == TOGETHER);
        prop_assert_eq!(way.known, [0, 0]);
    }
}

/// "The way in use changes if the other's share is lower by an eighth of it", and the other is tried for one period: a
/// trial that shows less than that, or that the other way is worse, takes that period and one to go back.
#[test]
fn a_trial_that_gains_nothing_is_taken_back() {
    for (apart, together) in [(100, 100), (110, 100), (95, 100)] {
        let spent = Vm::new(TOGETHER, 1).live(200, apart, together);
        let trials = 2 * 200 / OVB_TOGETHER_TRIAL;
        assert!(
            spent >= 200 - trials,
            "{spent} of 200 periods together, which spins {together}, not {apart}"
        );
    }
}
