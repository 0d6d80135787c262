// SPDX-License-Identifier: GPL-2.0-only
//! The store of IPI relations under events in any order, lost and doubled ones included: whoever it names was sent
//! an IPI within the window and has not been seen to handle it; and whoever was, it names.

mod common;

use common::{cases, start};
use overbook_policy::relations::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const WINDOW: u64 = OVB_WINDOW_NS as u64;
const VCPUS: u32 = 12;
/// Linux's own IPIs.
const VECTORS: [u32; 3] = [0xfb, 0xfc, 0xfd];

#[derive(Clone, Debug)]
enum Event {
    /// An IPI of vCPU 0; whether the probe on the receiver's side sees it as well.
    Send(u32, u32, bool),
    /// An end of an interrupt; whether it is seen, and how often.
    End(u32, u32, u8),
    Pass(u64),
    Init,
}

/// Whether the summary names a receiver.
fn named_as_many(store: &Relations, receiver: u32, now: u64) -> bool {
    within(store.many_at, now, WINDOW) && store.many[receiver as usize / 64] >> (receiver % 64) & 1 == 1
}

fn event() -> impl Strategy<Value = Event> {
    let vector = || (0usize..VECTORS.len()).prop_map(|i| VECTORS[i]);
    prop_oneof![
        5 => (1..VCPUS, vector(), any::<bool>()).prop_map(|(r, v, seen)| Event::Send(r, v, seen)),
        5 => (1..VCPUS, vector(), 0u8..3).prop_map(|(r, v, times)| Event::End(r, v, times)),
        3 => (0u64..2 * WINDOW).prop_map(Event::Pass),
        1 => Just(Event::Init),
    ]
}

/// The truth beside what the store believes.
#[derive(Default)]
struct World {
    store: Relations,
    inboxes: BTreeMap<u32, Inbox>,
    /// Last send by receiver and vector, and whether its end has been seen.
    sends: BTreeMap<(u32, u32), (u64, bool)>,
    now: u64,
}

impl World {
    fn apply(&mut self, event: &Event) {
        self.now = self.now.wrapping_add(1);
        match *event {
            Event::Send(receiver, vector, seen) => {
                self.store.send(receiver, vector, self.now, WINDOW);
                if seen {
                    self.inboxes.entry(receiver).or_default().sent(vector);
                }
                self.sends.insert((receiver, vector), (self.now, false));
            }
            Event::End(receiver, vector, times) => {
                for _ in 0..times {
                    let inbox = self.inboxes.entry(receiver).or_default();
                    inbox.end(vector, self.now);
                    // A receiver that was never told of this vector keeps no stamp.
                    if inbox.has_ended(vector, self.now.wrapping_sub(1))
                        && let Some(send) = self.sends.get_mut(&(receiver, vector))
                    {
                        send.1 = true;
                    }
                }
            }
            Event::Pass(ns) => self.now = self.now.wrapping_add(ns),
            Event::Init => {
                self.store.reset();
                self.sends.clear();
            }
        }
    }

    /// Receivers and vectors that the slots hold open.
    fn open(&self) -> Vec<(u32, u32)> {
        let ended = |slot: &Relation| {
            self.inboxes.get(&slot.receiver).is_some_and(|i| i.has_ended(slot.vector.into(), slot.sent_at))
        };
        let open = |slot: &&Relation| slot.open(self.now, WINDOW, Apic::Unknown, ended(slot));
        self.store.slot.iter().filter(open).map(|slot| (slot.receiver, slot.vector.into())).collect()
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn nobody_is_named_who_was_not_asked_or_has_answered(
        start in start(),
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World { now: start, ..World::default() };
        for event in &events {
            world.apply(event);
            for named in world.open() {
                let send = world.sends.get(&named);
                prop_assert!(send.is_some(), "{named:?} was never asked");
                let (at, ended) = send.unwrap();
                prop_assert!(world.now.wrapping_sub(*at) <= WINDOW, "{named:?} is stale");
                prop_assert!(!ended, "{named:?} has answered");
            }
            for receiver in (0..VCPUS).filter(|r| named_as_many(&world.store, *r, world.now)) {
                let asked = world.sends.keys().any(|(r, _)| *r == receiver);
                prop_assert!(asked, "the summary names {receiver}, which was never asked");
            }
        }
    }

    #[test]
    fn whoever_was_asked_and_has_not_answered_is_named(
        start in start(),
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World { now: start, ..World::default() };
        for event in &events {
            world.apply(event);
            let open = world.open();
            for (&(receiver, vector), &(at, ended)) in &world.sends {
                let waits = !ended && world.now.wrapping_sub(at) <= WINDOW;
                let known = open.contains(&(receiver, vector))
                    || named_as_many(&world.store, receiver, world.now);
                prop_assert!(known || !waits, "{receiver} is forgotten");
            }
        }
    }

    #[test]
    fn the_apic_overrules_stamps(sent_at in start(), age in 0u64..WINDOW, ended: bool) {
        let mut store = Relations::default();
        store.send(3, 0xfd, sent_at, WINDOW);
        let (slot, now) = (store.slot[0], sent_at.wrapping_add(age));
        prop_assert!(slot.open(now, WINDOW, Apic::Pending, ended));
        prop_assert!(!slot.open(now, WINDOW, Apic::Idle, ended));
        prop_assert_eq!(slot.open(now, WINDOW, Apic::Unknown, ended), !ended);
        prop_assert!(!slot.open(sent_at.wrapping_add(WINDOW + 1), WINDOW, Apic::Pending, ended));
    }

    #[test]
    fn more_receivers_than_slots_are_all_known(start in start(), receivers in prop::collection::btree_set(0u32..256, 0..200)) {
        let mut store = Relations::default();
        for (i, receiver) in receivers.iter().enumerate() {
            store.send(*receiver, 0xfb, start.wrapping_add(i as u64), WINDOW);
        }
        let now = start.wrapping_add(300);
        for receiver in &receivers {
            let exact = store.slot.iter().any(|s| s.used != 0 && s.receiver == *receiver);
            prop_assert!(exact || named_as_many(&store, *receiver, now));
        }
        prop_assert!(!named_as_many(&store, 9, now.wrapping_add(2 * WINDOW)));
    }
}

/// The published rule's defects (facts.md A4), which ours does not have.
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
