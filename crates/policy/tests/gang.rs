// SPDX-License-Identifier: GPL-2.0-only
//! The choice between together and apart: it finds the better way, keeps it, follows a change, and leaves VMs alone
//! that do not spin.

use overbook_policy::gang::{Gang, OVB_GANG_ONE, OVB_GANG_TRIAL, share};
use proptest::prelude::*;

const PERIOD: u64 = 50_000_000;

/// A VM that runs one CPU and spins a share of it, which depends on the way.
struct Vm {
    gang: Gang,
    now: u64,
    run: u64,
    spin: u64,
    together: bool,
}

impl Vm {
    fn new(start: u64) -> Vm {
        Vm { gang: Gang::default(), now: start, run: 0, spin: 0, together: false }
    }

    /// Periods spent together, of `periods`, if it spins so many per mille in each way.
    fn live(&mut self, periods: u32, apart: u64, together: u64) -> u32 {
        (0..periods)
            .map(|_| {
                let per_mille = if self.together { together } else { apart };
                let spent = u32::from(self.together);
                self.now += PERIOD;
                self.run += PERIOD;
                self.spin += PERIOD / 1000 * per_mille;
                self.together = self.gang.step(self.now, self.run, self.spin, PERIOD);
                spent
            })
            .sum()
    }
}

proptest! {
    #[test]
    fn the_better_way_is_kept(start in 1u64..1 << 60, better in 20u64..400, more in 100u64..500, together: bool) {
        let worse = better + better / 4 + more;
        let mut vm = Vm::new(start);
        let (apart, gang) = if together { (worse, better) } else { (better, worse) };
        vm.live(8, apart, gang);
        let spent = vm.live(160, apart, gang);
        let right = if together { spent } else { 160 - spent };
        // All but the trials, and the way back from each.
        prop_assert!(right >= 160 - 2 * 160 / OVB_GANG_TRIAL - 2, "{right} of 160");
    }

    #[test]
    fn trials_become_rare(start in 1u64..1 << 60, better in 50u64..200) {
        let mut vm = Vm::new(start);
        vm.live(600, better, 3 * better);
        prop_assert!(vm.live(2560, better, 3 * better) <= 11);
    }

    #[test]
    fn a_change_of_the_guest_is_followed(start in 1u64..1 << 60) {
        let mut vm = Vm::new(start);
        vm.live(40, 300, 50);
        prop_assert!(vm.live(20, 300, 50) >= 17);
        vm.live(60, 50, 500);
        prop_assert!(vm.live(40, 50, 500) <= 6);
    }

    #[test]
    fn who_does_not_spin_is_left_alone(start in 1u64..1 << 60, apart in 0u64..19) {
        let mut vm = Vm::new(start);
        prop_assert_eq!(vm.live(100, apart, 0), 0);
    }

    #[test]
    fn shares_are_shares(spin: u64, run: u64) {
        let part = share(spin, run);
        prop_assert!(part <= OVB_GANG_ONE);
        if run > 1 << 20 && run < 1 << 50 {
            let exact = (spin as f64 / run as f64).min(1.0) * f64::from(OVB_GANG_ONE);
            prop_assert!((f64::from(part) - exact).abs() < 2.0, "{part} is not {exact}");
        }
    }

    #[test]
    fn a_period_is_not_cut_short(now: u64, run: u64, spin: u64) {
        let mut gang = Gang { began_at: now, ..Gang::default() };
        prop_assert!(!gang.step(now.wrapping_add(PERIOD - 1), run, spin, PERIOD));
        prop_assert_eq!(gang.known, [0, 0]);
    }
}
