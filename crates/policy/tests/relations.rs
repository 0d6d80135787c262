// SPDX-License-Identifier: GPL-2.0-only
//! The store of IPI relations under events in any order, lost and doubled ones included: whoever it names was sent
//! an IPI within the window and has not been seen to handle it; and whoever was, it names.

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

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    ProptestConfig::with_cases(cases)
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
                    self.inboxes.entry(receiver).or_default().sent(vector, self.now);
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
    #![proptest_config(cases())]

    #[test]
    fn nobody_is_named_who_was_not_asked_or_has_answered(
        start: u64,
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
            for receiver in (0..VCPUS).filter(|r| world.store.many(*r, world.now, WINDOW)) {
                let asked = world.sends.keys().any(|(r, _)| *r == receiver);
                prop_assert!(asked, "the summary names {receiver}, which was never asked");
            }
        }
    }

    #[test]
    fn whoever_was_asked_and_has_not_answered_is_named(
        start: u64,
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World { now: start, ..World::default() };
        for event in &events {
            world.apply(event);
            let open = world.open();
            for (&(receiver, vector), &(at, ended)) in &world.sends {
                let waits = !ended && world.now.wrapping_sub(at) <= WINDOW;
                let known = open.contains(&(receiver, vector))
                    || world.store.many(receiver, world.now, WINDOW);
                prop_assert!(known || !waits, "{receiver} is forgotten");
            }
        }
    }

    #[test]
    fn the_apic_overrules_stamps(sent_at: u64, age in 0u64..WINDOW, ended: bool) {
        let mut store = Relations::default();
        store.send(3, 0xfd, sent_at, WINDOW);
        let (slot, now) = (store.slot[0], sent_at.wrapping_add(age));
        prop_assert!(slot.open(now, WINDOW, Apic::Pending, ended));
        prop_assert!(!slot.open(now, WINDOW, Apic::Idle, ended));
        prop_assert_eq!(slot.open(now, WINDOW, Apic::Unknown, ended), !ended);
        prop_assert!(!slot.open(sent_at.wrapping_add(WINDOW + 1), WINDOW, Apic::Pending, ended));
    }

    #[test]
    fn more_receivers_than_slots_are_all_known(start: u64, receivers in prop::collection::btree_set(0u32..256, 0..200)) {
        let mut store = Relations::default();
        for (i, receiver) in receivers.iter().enumerate() {
            store.send(*receiver, 0xfb, start.wrapping_add(i as u64), WINDOW);
        }
        let now = start.wrapping_add(300);
        for receiver in &receivers {
            let exact = store.slot.iter().any(|s| s.used != 0 && s.receiver == *receiver);
            prop_assert!(exact || store.many(*receiver, now, WINDOW));
        }
        prop_assert!(!store.many(9, now.wrapping_add(2 * WINDOW), WINDOW));
    }

    #[test]
    fn tiers_are_a_true_order(bits in 0u32..128, enabled in 0u32..128) {
        let bit = |i: u32| bits >> i & 1;
        let c = Candidate {
            available: bit(0), receiver: bit(1), interrupt: bit(2), in_kernel: bit(3), waiting: bit(4),
            wait_over: bit(5), stale: bit(6),
        };
        let tier = tier_of(&c, enabled);
        prop_assert!(tier == 0 || enabled >> tier & 1 == 1, "a tier that is switched off");
        prop_assert!(tier == 0 || c.available == 1, "nobody runs who is not queued");
        // One more reason never makes a candidate worse, nor does it to work where others wait.
        let better = Candidate { receiver: 1, ..c };
        prop_assert!(tier_of(&better, enabled) >= tier);
        let at_work = Candidate { waiting: 0, ..c };
        prop_assert!(tier_of(&at_work, OVB_TIERS_ALL) >= tier_of(&c, OVB_TIERS_ALL));
        // Who waits, for all that is known, goes behind everybody at work, and without a reason is chosen only as stale.
        let waits = c.waiting == 1 && c.wait_over == 0;
        prop_assert!(!waits || tier <= OVB_TIER_CHAINED);
        prop_assert!(!waits || c.receiver == 1 || c.interrupt == 1 || tier < OVB_TIER_CHAINED);
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

#[test]
fn moves_pay_from_four_times_their_cost() {
    assert!(handoff_pays(200_000, 50_000) && !handoff_pays(199_999, 50_000));
}
