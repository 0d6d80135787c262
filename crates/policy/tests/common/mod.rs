// SPDX-License-Identifier: GPL-2.0-only
//! What the property tests share.
#![allow(dead_code, reason = "each test takes what it needs")]

use proptest::prelude::*;

/// So many cases, or as many as PROPTEST_CASES says.
pub fn cases(cases: u32) -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let cases = said.unwrap_or(cases);
    // More cases meet more that a test does not mean.
    ProptestConfig {
        cases,
        max_global_rejects: cases,
        max_local_rejects: cases.max(65_536),
        ..Default::default()
    }
}

/// Any time, or one from 1 ns to 17 s before the wrap, where the scheduler's clocks start.
pub fn start() -> impl Strategy<Value = u64> {
    let near = (0u64..1 << 34, 0u32..34).prop_map(|(before, shift)| u64::MAX - (before >> shift));
    prop_oneof![any::<u64>(), near]
}
