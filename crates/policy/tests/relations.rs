// SPDX-License-Identifier: GPL-2.0-only
//! Whom a sender waits for, under sends and ends in any order, doubled ones included: it has been answered when the
//! last of its receivers has ended an interrupt, and only then.

mod common;

use common::{cases, start};
use overbook_policy::relations::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const WINDOW: u64 = 50_000_000;

#[derive(Clone, Debug)]
enum Event {
    Send(u32),
    End(u32),
    /// A CPU's clock may be behind another's.
    Pass(i64),
    Init,
}

fn event() -> impl Strategy<Value = Event> {
    let receiver = || prop_oneof![0u32..4, 0..OVB_SENT_MANY];
    prop_oneof![
        5 => receiver().prop_map(Event::Send),
        5 => receiver().prop_map(Event::End),
        2 => prop_oneof![0..2 * WINDOW as i64, -1000i64..0].prop_map(Event::Pass),
        1 => Just(Event::Init),
    ]
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn the_last_answer_is_the_one_that_counts(start in start(), events in prop::collection::vec(event(), 0..60)) {
        let (mut sent, mut open, mut now, mut last) = (Sent::default(), BTreeSet::new(), start, start);
        sent.send(0, now, WINDOW);
        open.insert(0);
        for event in &events {
            match *event {
                Event::Send(receiver) => {
                    if now.wrapping_sub(last) as i64 > WINDOW as i64 {
                        open.clear();
                    }
                    sent.send(receiver, now, WINDOW);
                    last = now;
                    open.insert(receiver);
                }
                Event::End(receiver) => {
                    let was = open.remove(&receiver);
                    prop_assert_eq!(sent.answered(receiver), was && open.is_empty());
                }
                Event::Pass(ns) => now = now.wrapping_add_signed(ns),
                Event::Init => {
                    sent.reset();
                    open.clear();
                }
            }
        }
    }
}

/// The published rule's defects, which ours does not have.
#[test]
fn the_published_slot_forgets() {
    let (mut a, mut b, mut c) = (IpiSlot::default(), IpiSlot::default(), IpiSlot::default());
    published_send(&mut a, 0, &mut b, 1, 1000);
    assert!(published_waits_for(&a, 1, 2000, WINDOW));
    // A second receiver overwrites the first, which has not answered.
    published_send(&mut a, 0, &mut c, 2, 3000);
    assert!(!published_waits_for(&a, 1, 4000, WINDOW));
    assert!(published_waits_for(&a, 2, 4000, WINDOW));
    // A timer's EOI on the receiver ends the relation.
    let sender = published_eoi(&mut c).unwrap();
    assert_eq!(sender, 0);
    published_answered(&mut a, 2, 5000, WINDOW);
    assert!(!published_waits_for(&a, 2, 5000, WINDOW));
    // And it wipes what the receiver itself has sent.
    published_send(&mut b, 1, &mut a, 0, 6000);
    published_eoi(&mut b);
    assert!(!published_waits_for(&b, 0, 6001, WINDOW));
    assert_eq!(ple_kvm_bit(63), 1 << 63);
    assert_eq!(ple_kvm_bit(64), 0, "ple-kvm knows 64 vCPUs");
}
