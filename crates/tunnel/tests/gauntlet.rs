// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler passes the gauntlet.

use overbook_tunnel::gauntlet::TRIALS;

#[test]
fn the_scheduler_passes_all_trials() {
    let mut failed = Vec::new();
    for trial in TRIALS {
        let report = trial.run(None).unwrap();
        println!("{:<22} {:>9} events, {:>6} switches", trial.name, report.events, report.switches);
        failed.extend(report.findings.lines().iter().map(|line| format!("{}: {line}", trial.name)));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_trial_is_the_same_again() {
    let digests = |nth: usize| TRIALS[nth].run(None).unwrap().digest;
    for nth in [0, TRIALS.len() - 1] {
        assert_eq!(digests(nth), digests(nth), "{}", TRIALS[nth].name);
    }
}
