// SPDX-License-Identifier: GPL-2.0-only
//! Classes: what each changes, for all values; normal changes nothing.

mod common;

use common::cases;
use overbook_policy::class::*;
use overbook_policy::turn;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn slices() -> impl Strategy<Value = u64> {
    1u64..1 << 40
}

#[test]
fn the_example_of_the_header() {
    let us = |class: Class| class.slice(3_000_000) / 1000;
    assert_eq!([us(Class::Latency), us(Class::Normal), us(Class::Batch)], [750, 3000, 6000]);
    let s = |class: Class| class.patience(10 * S) / S;
    assert_eq!([s(Class::Latency), s(Class::Normal), s(Class::Batch)], [1, 10, 20]);
    let promised = |class: Class| class.promise(10 * S) / S;
    assert_eq!([promised(Class::Latency), promised(Class::Normal), promised(Class::Batch)], [2, 11, 21]);
    assert_eq!((Class::Latency.margin(500), Class::Batch.margin(500)), (0, 500));
    assert!(Class::Latency.preempts() && Class::Normal.preempts() && !Class::Batch.preempts());
}

#[test]
fn names_and_numbers_are_those_of_one_class() {
    for class in Class::ALL {
        assert_eq!((Class::named(class.name()), Class::numbered(class as u32)), (Some(class), class));
    }
    assert_eq!((Class::named("Latency"), Class::named("")), (None, None));
    assert_eq!(Class::numbered(77), Class::Normal);
}

/// Three tenants on one CPU, served by their deadlines for many slices: how much each has had.
fn served(classes: &[Class], slice: u64, rounds: u32) -> Vec<u64> {
    let mut vtimes = vec![0u64; classes.len()];
    let mut deadlines: Vec<u64> = classes.iter().map(|class| class.slice(slice)).collect();
    for _ in 0..rounds {
        let next = (0..classes.len()).min_by_key(|i| deadlines[*i]).unwrap();
        vtimes[next] += classes[next].slice(slice);
        if turn::over(vtimes[next], deadlines[next], classes[next].slice(slice)) {
            deadlines[next] = vtimes[next] + classes[next].slice(slice);
        }
    }
    vtimes
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn normal_is_as_if_there_were_no_classes(any: u64) {
        let class = Class::Normal;
        prop_assert_eq!((class.slice(any), class.margin(any), class.patience(any)), (any, any, any));
    }

    #[test]
    fn slices_are_in_the_order_of_the_classes(slice in slices()) {
        let of = |class: Class| class.slice(slice);
        prop_assert!(0 < of(Class::Latency) && of(Class::Latency) <= of(Class::Normal));
        prop_assert!(of(Class::Normal) < of(Class::Batch) && of(Class::Batch) == 2 * slice);
    }

    /// Whatever is set, no class waits until the kernel's watchdog ends the scheduler, and none for less than a better one.
    #[test]
    fn promises_are_kept_before_the_watchdog_comes(patience in 1_000_000..=PATIENCE_MOST_NS) {
        let of = |class: Class| class.promise(patience);
        prop_assert!(of(Class::Latency) < of(Class::Normal) && of(Class::Normal) <= of(Class::Batch));
        prop_assert!(of(Class::Batch) < 30 * S);
        for class in Class::ALL {
            prop_assert_eq!(of(class), class.patience(patience) + PROMISE_ROOM_NS);
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    /// However many there are of each class, all have the same, but for the slices of two turns: for ever.
    #[test]
    fn a_class_earns_nothing(
        numbers in prop::collection::vec(0u32..3, 1..8), slice in 100_000u64..100_000_000, rounds in 100u32..5000
    ) {
        let classes: Vec<Class> = numbers.into_iter().map(Class::numbered).collect();
        let had = served(&classes, slice, rounds);
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        prop_assert!(most - least <= 2 * Class::Batch.slice(slice), "{had:?}");
    }
}
