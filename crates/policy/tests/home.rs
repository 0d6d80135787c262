// SPDX-License-Identifier: GPL-2.0-only
//! Homes of VMs: where they fit, where there is room, and for as long as there is.

mod common;

use common::cases;
use overbook_policy::home::{Homes, House, Housed, Resident, find_homes};
use proptest::prelude::*;

const ONE: u32 = 10_000;

/// Homes of VMs of so many vCPUs, that want so many CPUs and are at home somewhere.
fn homes(llcs: &[u32], vms: &[(u32, f64, u32)]) -> Vec<u32> {
    let mut llcs: Vec<House> = llcs.iter().map(|cpus| House::new(*cpus)).collect();
    let housed = |(vcpus, wants, home): &(u32, f64, u32)| Housed {
        llcs: u64::MAX,
        vcpus: *vcpus,
        wants: (wants * f64::from(ONE)) as u32,
        home: *home,
    };
    let mut vms: Vec<Housed> = vms.iter().map(housed).collect();
    find_homes(&mut vms, &mut llcs);
    vms.iter().map(|vm| vm.home).collect()
}

#[test]
fn the_example_of_the_header() {
    assert_eq!(homes(&[4, 4], &[(4, 4.0, 0), (4, 3.0, 0), (4, 1.0, 0)]), [1, 2, 2]);
}

#[test]
fn homes_are_where_vms_fit_and_where_there_is_room() {
    // Too large for any; for one; unequal LLCs fill up alike.
    assert_eq!(homes(&[4, 4], &[(5, 5.0, 0)]), [0]);
    assert_eq!(homes(&[2, 8], &[(4, 1.0, 0), (4, 1.0, 0)]), [2, 2]);
    assert_eq!(homes(&[2, 6], &[(2, 2.0, 0); 4]), [2, 2, 1, 2]);
    // It has grown out of its home, or the LLC has gone.
    assert_eq!(homes(&[2, 8], &[(4, 1.0, 1)]), [2]);
    assert_eq!(homes(&[4], &[(4, 1.0, 3)]), [1]);
}

#[test]
fn who_has_a_home_keeps_it_unless_it_is_crowded() {
    // Both fit where they are.
    assert_eq!(homes(&[4, 4], &[(4, 2.0, 1), (4, 2.0, 1)]), [1, 1]);
    // They do not; one of them goes, and no more.
    assert_eq!(homes(&[4, 4], &[(4, 4.0, 1), (4, 4.0, 1)]), [2, 1]);
    // All are crowded alike.
    assert_eq!(homes(&[4, 4], &[(4, 4.0, 1), (4, 4.0, 1), (4, 4.0, 2), (4, 4.0, 2)]), [1, 1, 2, 2]);
    // Less by a tenth is not enough.
    assert_eq!(homes(&[4, 4], &[(4, 1.0, 1), (4, 4.0, 1), (4, 3.5, 2)]), [1, 1, 2]);
}

#[test]
fn a_look_counts_what_was_wanted_since_the_last() {
    let mut homes = Homes::new(&[4, 4]);
    let vm = |place: u32, seconds: u64| Resident {
        place,
        pid: 100 + place,
        vcpus: 4,
        wanted_ns: seconds * 1_000_000_000,
        ..Resident::default()
    };
    let second = 1_000_000_000;
    assert_eq!(homes.look(0, &[vm(0, 7), vm(1, 9), vm(2, 0)]), [(0, 1), (1, 2), (2, 1)]);
    // The third is quiet, and so nobody is crowded.
    assert_eq!(homes.look(second, &[vm(0, 11), vm(1, 13), vm(2, 0)]), []);
    // The second is quiet from now on, and the third is not.
    assert_eq!(homes.look(2 * second, &[vm(0, 15), vm(1, 13), vm(2, 4)]), [(0, 2)]);
    // Another VM in the place of one: it is new, and its home is told.
    let other = Resident { pid: 7, ..vm(2, 0) };
    assert_eq!(homes.look(3 * second, &[vm(0, 19), vm(1, 13), other]), [(2, 1)]);
    // The first begins anew in its process: it stays, and is told again.
    assert_eq!(homes.look(4 * second, &[vm(0, 1), vm(1, 13), Resident { wanted_ns: 1, ..other }]), [(0, 2)]);
}

#[test]
fn who_is_bound_is_at_home_there_and_others_elsewhere() {
    let mut homes = Homes::new(&[4, 4]);
    let vm =
        |place: u32, llcs: u64| Resident { place, pid: 100 + place, vcpus: 4, llcs, ..Resident::default() };
    let busy = |place, seconds: u64, llcs| Resident { wanted_ns: seconds * 4_000_000_000, ..vm(place, llcs) };
    let at = |seconds: u64| seconds * 1_000_000_000;
    // The second is there first, as it can be nowhere else.
    assert_eq!(homes.look(0, &[vm(0, 3), vm(1, 1)]), [(0, 2), (1, 1)]);
    // It is bound to the other, and the first makes room.
    assert_eq!(homes.look(at(1), &[busy(0, 1, 3), busy(1, 1, 2)]), [(0, 1), (1, 2)]);
    // It may use both again, and stays where it is.
    assert_eq!(homes.look(at(2), &[busy(0, 2, 3), busy(1, 2, 3)]), []);
    // Both are bound to one, however crowded it is.
    assert_eq!(homes.look(at(3), &[busy(0, 3, 1), busy(1, 3, 1)]), [(1, 1)]);
    assert_eq!(homes.look(at(4), &[busy(0, 4, 1), busy(1, 4, 1)]), []);
}

/// What a VM waits for beyond its `cpu.max` takes no room.
#[test]
fn who_is_limited_wants_no_more_than_it_may_have() {
    let mut homes = Homes::new(&[4, 4]);
    let vm = |place: u32, limit| Resident { place, pid: 100 + place, vcpus: 4, limit, ..Resident::default() };
    assert_eq!(homes.look(0, &[vm(0, None), vm(1, Some(0.5)), vm(2, None)]), [(0, 1), (1, 2), (2, 2)]);
    // The second waits all the time, and the third stays beside it.
    let busy = |place, limit| Resident { wanted_ns: 4_000_000_000, ..vm(place, limit) };
    assert_eq!(homes.look(1_000_000_000, &[busy(0, None), busy(1, Some(0.5)), busy(2, None)]), []);
}

/// A process may have several VMs.
#[test]
fn two_vms_of_a_process_are_two() {
    let mut homes = Homes::new(&[4, 4]);
    let vm = |place: u32, seconds: u64| Resident {
        place,
        pid: 100,
        vcpus: 4,
        wanted_ns: seconds * 1_000_000_000,
        ..Resident::default()
    };
    assert_eq!(homes.look(0, &[vm(0, 4), vm(1, 4)]), [(0, 1), (1, 2)]);
    assert_eq!(homes.look(1_000_000_000, &[vm(0, 5), vm(1, 5)]), []);
}

/// All LLCs, mostly; some, one or none.
fn may_run() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 0u64..1024, (0u32..10).prop_map(|llc| 1 << llc)]
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn nobody_moves_to_a_worse_place_and_all_who_fit_have_one(
        llcs in prop::collection::vec(1u32..65, 1..9),
        vms in prop::collection::vec((1u32..80, 0u32..80 * ONE, 0u32..10, may_run()), 0..60),
    ) {
        let mut houses: Vec<House> = llcs.iter().map(|cpus| House::new(*cpus)).collect();
        let before: Vec<Housed> =
            vms.iter().map(|(vcpus, wants, home, llcs)| Housed { llcs: *llcs, vcpus: *vcpus, wants: *wants, home: *home }).collect();
        let mut after = before.clone();
        find_homes(&mut after, &mut houses);
        let fits = |vm: &Housed, home: u32| {
            let nth = home.wrapping_sub(1) as usize;
            llcs.get(nth).is_some_and(|cpus| vm.vcpus <= *cpus && vm.llcs >> nth & 1 == 1)
        };
        let crowded = |vms: &[Housed]| {
            let of = |llc: usize| {
                let wanted = vms.iter().filter(|vm| fits(vm, vm.home) && vm.home as usize == llc + 1);
                wanted.map(|vm| f64::from(vm.wants)).sum::<f64>() / f64::from(llcs[llc])
            };
            (0..llcs.len()).map(of).fold(0.0, f64::max)
        };
        for vm in &after {
            prop_assert_eq!(vm.home > 0, (1..=llcs.len() as u32).any(|home| fits(vm, home)));
            prop_assert!(vm.home == 0 || fits(vm, vm.home));
        }
        // Where all had a home that fits, the most crowded is no more so.
        if before.iter().all(|vm| fits(vm, vm.home)) {
            prop_assert!(crowded(&after) <= crowded(&before) + 1e-6);
        }
        // Once found, they last.
        let mut again = after.clone();
        for _ in 0..60 {
            find_homes(&mut again, &mut houses);
        }
        let settled = again.clone();
        find_homes(&mut again, &mut houses);
        prop_assert_eq!(again, settled);
    }
}
