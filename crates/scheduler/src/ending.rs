// SPDX-License-Identifier: GPL-2.0-only
//! How a scheduler ends, in one sentence and one exit status: whoever starts it again must know whether that is of use.
//!
//! | status | what happened | the service |
//! |---|---|---|
//! | 0 | it was asked to end | stays down |
//! | 1 | something failed | starts again, a few times |
//! | 2 | an option is wrong | stays down |
//! | 3 | nothing can be loaded here until somebody changes something, or somebody has unloaded it by hand | stays down |
//! | 4 | the kernel threw it out | starts again after a pause, a few times |

use anyhow::{Result, anyhow};
use scx_utils::UserExitInfo;
use std::fmt;
use thiserror::Error;

/// Exit status where an option is wrong, on the command line (clap's) or in the file of defaults.
pub const WRONG_OPTION: u8 = 2;

/// Exit status where starting again is of no use.
pub const REFUSED: u8 = 3;

/// Exit status after the kernel has thrown a scheduler out.
pub const EJECTED: u8 = 4;

/// Nothing can be loaded until somebody changes something; the sentence says what.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// An option is wrong that clap cannot refuse; the sentence says which.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct WrongOption(pub String);

/// Why the kernel has unloaded a scheduler that nobody had asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A task was runnable for longer than the watchdog bears.
    Stall,
    /// The kernel found an error of the scheduler, or the scheduler one of its own.
    Error,
    /// Somebody pressed SysRq-S.
    SysRq,
    /// Something that only newer kernels have.
    Unknown,
}

impl Cause {
    /// From the kernel's words, which begin with its reason (`scx_exit_reason()` in kernel/sched/ext.c).
    fn of(told: &str) -> Cause {
        let is = |reason: &str| told.starts_with(reason);
        if is("runnable task stall") {
            Cause::Stall
        } else if is("runtime error") || is("scx_bpf_error") {
            Cause::Error
        } else if is("disabled by sysrq") {
            Cause::SysRq
        } else {
            Cause::Unknown
        }
    }
}

/// The kernel has unloaded a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejected {
    /// Why.
    pub cause: Cause,
    /// What the kernel says, on one line.
    pub told: String,
}

impl Ejected {
    /// From what scx_utils makes of the kernel's words: `EXIT: REASON (MESSAGE) on CPU N`.
    fn from_report(report: &str) -> Ejected {
        let told = report.trim().strip_prefix("EXIT: ").unwrap_or(report.trim());
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        Ejected { cause: Cause::of(&told), told }
    }

    /// Exit status of the program.
    pub fn status(&self) -> u8 {
        match self.cause {
            Cause::SysRq => REFUSED,
            Cause::Stall | Cause::Error | Cause::Unknown => EJECTED,
        }
    }
}

impl fmt::Display for Ejected {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let told = &self.told;
        match self.cause {
            Cause::Stall => write!(
                f,
                "the kernel's watchdog threw the scheduler out, as a task that could run had no CPU for too long ({told}); EEVDF \
                 schedules again and VMs run on: hand this sentence and the kernel's log to whoever gave you Overbook"
            ),
            Cause::Error => write!(
                f,
                "the kernel threw the scheduler out for an error ({told}); EEVDF schedules again and VMs run on: hand this \
                 sentence and the kernel's log to whoever gave you Overbook"
            ),
            Cause::SysRq => write!(
                f,
                "somebody unloaded the scheduler by SysRq-S; EEVDF schedules until it is started again by hand"
            ),
            Cause::Unknown => write!(
                f,
                "the kernel unloaded the scheduler ({told}); EEVDF schedules again and VMs run on: its log may say more"
            ),
        }
    }
}

impl std::error::Error for Ejected {}

/// Whether a scheduler ended as it was asked to; what is to be known of its end is printed.
///
/// # Errors
/// The kernel threw it out: [`Ejected`].
pub fn report(exit: &UserExitInfo) -> Result<()> {
    exit.report().map_err(|why| anyhow!(Ejected::from_report(&format!("{why:#}"))))
}

/// Exit status of a program that ends with this error.
pub fn status(error: &anyhow::Error) -> u8 {
    let ejected = error.chain().find_map(|cause| cause.downcast_ref::<Ejected>());
    match ejected {
        Some(ejected) => ejected.status(),
        None if error.chain().any(|cause| cause.is::<Refused>()) => REFUSED,
        None if error.chain().any(|cause| cause.is::<WrongOption>()) => WRONG_OPTION,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_kernels_reasons_become_sentences() {
        for (report, cause, status, says) in [
            (
                "EXIT: runnable task stall (CPU 3/KVM[4411] failed to run for 30.512s) on CPU 2",
                Cause::Stall,
                EJECTED,
                "CPU 3/KVM[4411] failed to run for 30.512s",
            ),
            ("EXIT: runtime error (invalid DSQ ID 0x7)", Cause::Error, EJECTED, "invalid DSQ ID 0x7"),
            ("EXIT: scx_bpf_error (no\n memory)", Cause::Error, EJECTED, "scx_bpf_error (no memory)"),
            ("EXIT: disabled by sysrq-S", Cause::SysRq, REFUSED, "by hand"),
            ("EXIT: parent exiting", Cause::Unknown, EJECTED, "parent exiting"),
            ("<UNKNOWN>", Cause::Unknown, EJECTED, "<UNKNOWN>"),
        ] {
            let ejected = Ejected::from_report(report);
            assert_eq!((ejected.cause, ejected.status()), (cause, status), "{report}");
            let sentence = ejected.to_string();
            assert!(sentence.contains(says) && sentence.contains("EEVDF"), "{sentence}");
            assert!(
                !sentence.contains('\n') && !sentence.ends_with('.') && !sentence.contains("EXIT:"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn statuses_are_found_below_other_words() {
        let deep = anyhow!(Ejected::from_report("EXIT: runtime error")).context("while it served");
        assert_eq!(status(&deep), EJECTED);
        let refused = Err::<(), _>(Refused("no sched_ext".into())).context("cannot start").unwrap_err();
        assert_eq!(status(&refused), REFUSED);
        assert_eq!(format!("{refused:#}"), "cannot start: no sched_ext");
        assert_eq!(status(&anyhow!(WrongOption("low is above high".into()))), WRONG_OPTION);
        assert_eq!(status(&anyhow!("the disk is full")), 1);
    }

    #[test]
    fn the_services_know_the_statuses() {
        for unit in [
            include_str!("../../../packaging/systemd/overbook-host.service"),
            include_str!("../../../packaging/systemd/overbook-guest.service"),
        ] {
            let value = |key: &str| {
                let line = unit.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_else(|| panic!("no {key} in {unit}")).trim().to_string()
            };
            assert_eq!(value("RestartPreventExitStatus="), format!("{WRONG_OPTION} {REFUSED}"));
            assert!(!value("RestartPreventExitStatus=").contains(&EJECTED.to_string()));
            // systemd gives up only if so many starts fit into its interval.
            let number = |key: &str| value(key).parse::<u64>().unwrap();
            let (pause, interval, starts) =
                (number("RestartSec="), number("StartLimitIntervalSec="), number("StartLimitBurst="));
            assert!(
                starts > 1 && pause >= 30 && starts * (pause + 60) < interval,
                "{pause} {interval} {starts}"
            );
        }
    }
}
