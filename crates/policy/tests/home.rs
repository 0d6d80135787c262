// SPDX-License-Identifier: GPL-2.0-only
//! Homes of VMs: where they fit, where there is room, and for as long as there is.

mod common;

use common::cases;
use overbook_policy::home::{BOUND_WIDELY, Homes, House, Housed, Resident, find_homes};
use proptest::prelude::*;

const ONE: u32 = 10_000;

/// Homes of VMs of so many vCPUs, that want so many CPUs and are at home somewhere.
fn homes(llcs: &[u32], vms: &[(u32, f64, u32)]) -> Vec<u32> {
    let mut llcs: Vec<House> = llcs.iter().map(|cpus| House::new(*cpus)).collect();
    let housed = |(vcpus, wants, home): &(u32, f64, u32)| Housed {
        vcpus: *vcpus,
        bound: 0,
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
        bound: 0,
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
}

#[test]
fn who_is_bound_is_at_home_there_and_others_elsewhere() {
    let mut homes = Homes::new(&[4, 4]);
    let vm = |place: u32, bound: u32| Resident { place, pid: 100 + place, vcpus: 4, wanted_ns: 0, bound };
    assert_eq!(homes.look(0, &[vm(0, 2), vm(1, 0)]), [(0, 2), (1, 1)]);
    // Bound to both, what it wants is not counted; then to the other, and the second makes room.
    assert_eq!(homes.look(1, &[vm(0, BOUND_WIDELY), vm(1, 0)]), [(0, 0)]);
    let busy = |place, bound| Resident { wanted_ns: 4_000_000_000, ..vm(place, bound) };
    assert_eq!(homes.look(1_000_000_001, &[busy(0, 1), busy(1, 0)]), [(0, 1), (1, 2)]);
}

#[test]
fn a_vm_is_bound_where_all_its_vcpus_are() {
    let bound = |vcpus: &[u32]| {
        let mut vm = Resident { place: 0, pid: 1, vcpus: 0, wanted_ns: 0, bound: 0 };
        (0..).zip(vcpus).for_each(|(seen, vcpu)| vm.add_vcpu(seen, 1, *vcpu));
        (vm.bound, vm.wanted_ns)
    };
    assert_eq!(bound(&[]), (0, 0));
    assert_eq!(bound(&[0, 0]), (0, 2));
    assert_eq!(bound(&[3, 3, 3]), (3, 3));
    assert_eq!(bound(&[3, 4, 4]), (BOUND_WIDELY, 3));
    assert_eq!(bound(&[0, 4]), (BOUND_WIDELY, 2), "only some are");
    assert_eq!(bound(&[BOUND_WIDELY, 4]), (BOUND_WIDELY, 2));
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn who_is_bound_stays_there(
        llcs in prop::collection::vec(1u32..65, 1..9),
        vms in prop::collection::vec((1u32..80, 0u32..80 * ONE, 0u32..10, 0u32..12), 0..60),
    ) {
        let mut houses: Vec<House> = llcs.iter().map(|cpus| House::new(*cpus)).collect();
        let housed = |(vcpus, wants, home, bound): &(u32, u32, u32, u32)| {
            let bound = if *bound > 9 { BOUND_WIDELY } else { *bound };
            Housed { vcpus: *vcpus, bound, wants: *wants, home: *home }
        };
        let mut after: Vec<Housed> = vms.iter().map(housed).collect();
        find_homes(&mut after, &mut houses);
        for vm in after.iter().filter(|vm| vm.bound > 0) {
            prop_assert_eq!(vm.home, if vm.bound as usize <= llcs.len() { vm.bound } else { 0 });
        }
        let wanted = |llc: u32| after.iter().filter(|vm| vm.home == llc).map(|vm| u64::from(vm.wants)).sum::<u64>();
        prop_assert!(houses.iter().zip(1..).all(|(house, llc)| house.wanted == wanted(llc)));
    }

    #[test]
    fn nobody_moves_to_a_worse_place_and_all_who_fit_have_one(
        llcs in prop::collection::vec(1u32..65, 1..9),
        vms in prop::collection::vec((1u32..80, 0u32..80 * ONE, 0u32..10), 0..60),
    ) {
        let mut houses: Vec<House> = llcs.iter().map(|cpus| House::new(*cpus)).collect();
        let before: Vec<Housed> =
            vms.iter().map(|(vcpus, wants, home)| Housed { vcpus: *vcpus, bound: 0, wants: *wants, home: *home }).collect();
        let mut after = before.clone();
        find_homes(&mut after, &mut houses);
        let fits = |vm: &Housed, home: u32| {
            home > 0 && home as usize <= llcs.len() && vm.vcpus <= llcs[home as usize - 1]
        };
        let crowded = |vms: &[Housed]| {
            let of = |llc: usize| {
                let wanted = vms.iter().filter(|vm| fits(vm, vm.home) && vm.home as usize == llc + 1);
                wanted.map(|vm| f64::from(vm.wants)).sum::<f64>() / f64::from(llcs[llc])
            };
            (0..llcs.len()).map(of).fold(0.0, f64::max)
        };
        for vm in &after {
            prop_assert_eq!(vm.home > 0, llcs.iter().any(|cpus| vm.vcpus <= *cpus));
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
