// SPDX-License-Identifier: GPL-2.0-only
//! cpu.max: a group gets what it is due in the mean, and never more.

mod common;

use common::{cases, start};
use overbook_policy::quota::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A group as the scheduler begins it: one period's time, and the next period after it.
fn begun(quota: u64, period: u64, burst: u64, now: u64) -> Quota {
    Quota { quota, period, burst, left: quota as i64, next: now.wrapping_add(period), since: 0 }
}

/// Quotas of a hundredth of a CPU to many CPUs, bursts of at most a quota, as the kernel has them.
fn quota() -> impl Strategy<Value = Quota> {
    (1u64..1000, 1u64..1000, 0u64..=100, start()).prop_map(|(period, percent, burst, now)| {
        let quota = period * MS / 100 * percent;
        begun(quota, period * MS, quota / 100 * burst, now)
    })
}

/// What happens between two looks: so many hundredths of a period pass, and the group, where it is not throttled,
/// runs for so many hundredths of its quota.
fn steps(pass: std::ops::Range<u64>) -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((pass, prop_oneof![Just(0), 0u64..400]), 1..200)
}

proptest! {
    #![proptest_config(cases(5_000))]

    /// No more is handed out than the periods bring that have begun; in any stretch of time, than those that may begin
    /// in it; and no more is run than that, what was saved, and the last overrun.
    #[test]
    fn never_more_than_is_due(mut q in quota(), steps in steps(0..15_000)) {
        const OVERRUN: u64 = 4;
        let most = q.quota + q.burst;
        let mut now = q.next.wrapping_sub(q.period);
        let (mut since, mut handed, mut ran) = (0u64, 0u64, 0u64);
        let mut looks = Vec::new();
        for (pass, spend) in steps {
            let pass = q.period / 100 * pass;
            (now, since) = (now.wrapping_add(pass), since + pass);
            let before = q.left;
            q.refill(now);
            handed += u64::try_from(q.left - before).expect("a refill takes nothing");
            prop_assert!(q.left <= most as i64, "{} ns are left of {most}", q.left);
            let due = since / q.period * q.quota;
            prop_assert!(handed <= due, "{handed} ns handed out, {due} due");
            if q.left > 0 {
                let spend = q.quota / 100 * spend;
                q.left -= spend as i64;
                ran += spend;
            }
            prop_assert!(ran <= q.quota + due + OVERRUN * q.quota, "{ran} ns run, {due} due");
            // Whoever has not looked for long begins anew, at another beat.
            for &(then, handed_then, ran_then) in &looks {
                let due = ((since - then) / q.period + 1) * q.quota;
                prop_assert!(handed - handed_then <= due, "{} ns handed out, {due} due", handed - handed_then);
                prop_assert!(ran - ran_then <= due + most + OVERRUN * q.quota);
            }
            looks.push((since, handed, ran));
        }
    }

    /// A group that always wants to run has what it is due, to the last overrun, which is owed.
    #[test]
    fn never_less_for_who_is_hungry(mut q in quota(), overruns in prop::collection::vec(0u64..300, 1..300)) {
        let (mut ran, mut now, mut due) = (0u64, q.next, q.quota);
        for overrun in overruns {
            if q.left > 0 {
                let spend = q.left as u64 + q.quota / 100 * overrun;
                q.left -= spend as i64;
                ran += spend;
            }
            prop_assert_eq!(ran - q.left.unsigned_abs(), due, "what is owed is not forgotten");
            prop_assert!(q.refill(now));
            now = now.wrapping_add(q.period);
            due += q.quota;
        }
    }

    #[test]
    fn debts_are_carried(mut q in quota(), debt in 0u64..60, part in 0u64..100) {
        let owed = debt * q.quota + q.quota / 100 * part;
        q.left = -(owed as i64);
        let mut now = q.next;
        for _ in 0..debt {
            prop_assert!(q.refill(now));
            prop_assert!(q.left <= 0, "a debt is forgiven");
            now = now.wrapping_add(q.period);
        }
        q.refill(now);
        prop_assert_eq!(q.left, (q.quota - q.quota / 100 * part) as i64);
    }

    /// Whatever a group owes, and whatever of it still runs, it may run again OVB_QUOTA_LONGEST and a period after it was
    /// throttled; no sooner than it has paid, unless that is later.
    #[test]
    fn nobody_is_throttled_for_ever(
        mut q in quota(),
        owed in 0i64..1 << 60,
        still in prop::collection::vec(0i64..1 << 30, 10_001),
    ) {
        (q.left, q.since) = (-owed, q.next.wrapping_sub(q.period).max(1));
        let mut still = still.into_iter();
        let mut all = owed as u64;
        while q.left <= 0 {
            prop_assert!(q.refill(q.next));
            if q.left <= 0 {
                let more = still.next().unwrap();
                q.left -= more;
                all += more as u64;
            }
        }
        let took = q.next.wrapping_sub(q.period).wrapping_sub(q.since);
        prop_assert!(took <= OVB_QUOTA_LONGEST + q.period, "throttled for {took} ns");
        if took < OVB_QUOTA_LONGEST {
            prop_assert_eq!(took / q.period, all / q.quota + 1, "{} ns owed", all);
        }
    }

    #[test]
    fn a_long_sleep_saves_a_quota_and_the_burst(mut q in quota(), left in -100i64..100, slept in 1u64..1 << 40) {
        q.left = q.quota as i64 / 100 * left;
        let now = q.next.wrapping_add(slept * 1000);
        prop_assert!(q.refill(now));
        prop_assert!(q.left <= (q.quota + q.burst) as i64);
        if slept * 1000 >= 3 * q.period {
            prop_assert!(q.left >= q.quota as i64, "less than a quota after three periods");
        }
        // The next period is ahead, by a period at most.
        let ahead = q.next.wrapping_sub(now);
        prop_assert!(0 < ahead && ahead <= q.period, "{ahead} ns to the next period");
    }

    #[test]
    fn a_period_is_refilled_once(mut q in quota(), pass in 0u64..20_000, again in 0u64..100) {
        let now = q.next.wrapping_add(q.period / 100 * pass);
        prop_assert!(q.refill(now));
        q.left -= q.quota as i64 / 2;
        let once = q;
        prop_assert!(!q.refill(now));
        let later = q.next.wrapping_sub(1).wrapping_sub((q.next - 1 - now) / 100 * again);
        prop_assert!(!q.refill(later));
        prop_assert_eq!(q, once);
    }

    #[test]
    fn nothing_is_given_before_the_period_begins(mut q in quota(), early in 1u64..1 << 40) {
        let before = q;
        let early = q.next.wrapping_sub(early);
        prop_assert!(!q.refill(early));
        prop_assert_eq!(q, before);
    }

    /// The periods keep their beat, however late one looks within OVB_QUOTA_PERIODS.
    #[test]
    fn periods_do_not_drift(mut q in quota(), late in prop::collection::vec(0..100 * u64::from(OVB_QUOTA_PERIODS), 1..100)) {
        let first = q.next;
        for late in late {
            let now = q.next.wrapping_add(q.period / 100 * late);
            q.refill(now);
            prop_assert_eq!(q.next.wrapping_sub(first) % q.period, 0);
        }
    }

    #[test]
    fn no_quota_is_none(period in 1u64..1 << 40, left: i64, now: u64, next: u64) {
        let mut q = Quota { quota: 0, period, burst: 0, left, next, since: 0 };
        let before = q;
        prop_assert!(!q.refill(now));
        prop_assert_eq!(q, before);
    }
}

/// The header's example: 50 of 100 ms, 52 ms used on two CPUs by 26 ms.
#[test]
fn an_overrun_shortens_the_next_period() {
    let mut q = begun(50 * MS, 100 * MS, 0, 0);
    q.left -= 52 * MS as i64;
    assert!(!q.refill(99 * MS));
    assert!(q.refill(100 * MS));
    assert_eq!((q.left, q.next), (48 * MS as i64, 200 * MS));
}

#[test]
fn a_smaller_quota_takes_what_is_saved() {
    let mut q = begun(500 * MS, 100 * MS, 0, 0);
    q.quota = 10 * MS;
    assert!(q.refill(100 * MS));
    assert_eq!(q.left, 10 * MS as i64);
}

/// The largest that the kernel takes: 2^44 µs.
#[test]
fn the_largest_quota_does_not_overflow() {
    let quota = ((1u64 << 44) - 1) * 1000;
    let mut q = begun(quota, MS, quota, 0);
    assert!(q.refill(1000 * MS));
    assert_eq!(q.left, 2 * quota as i64);
    q.left = -(quota as i64);
    assert!(q.refill(q.next + 63 * MS));
    assert_eq!(q.left, 2 * quota as i64);
}
