// SPDX-License-Identifier: GPL-2.0-only
//! What may change while the guest's scheduler runs.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use overbook_cli::Switch;
use overbook_cli::changes::Changeable;
use overbook_cli::cpulist;
use overbook_cli::values::number;
use overbook_policy::steal::{PROPORTIONAL, Rules, STEP};
use overbook_scheduler::Tunables;
use overbook_scheduler::ending::WrongOption;
use serde::Serialize;

/// Value of `preferred` that has the governor choose.
pub const AUTO: &str = "auto";

/// How the number of preferred cores follows steal. docs/guest.md explains both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Governor {
    /// One core at a time, as published
    Step,
    /// As many cores as the host serves; a shrink that costs CPU time is taken back
    Proportional,
}

impl Governor {
    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
    }
}

/// The one table: a field here is an option, a key of `--set` (the option without its dashes) and a line of the manual.
#[derive(Args, Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// CPUs to prefer whatever the steal, as a list (0-3,8); auto: the governor chooses
    #[arg(long, value_name = "CPUS", default_value = AUTO, value_parser = choice)]
    pub preferred: String,
    /// How the number of preferred cores follows steal
    #[arg(long, value_enum, default_value = "proportional")]
    pub governor: Governor,
    /// Whether a host that tells how many CPUs it can give is believed; else, and without one, steal decides
    #[arg(long, value_enum, default_value = "on")]
    pub entitlement: Switch,
    /// Period of the steal monitor, in ms
    #[arg(long, default_value_t = 1000, value_parser = number(20u64, 100_000))]
    pub interval_ms: u64,
    /// Steal above this, in hundredths of a percent of the CPUs, takes cores away
    #[arg(long, default_value_t = 500, value_parser = number(0u32, 10_000))]
    pub high: u32,
    /// Steal not above this, in hundredths of a percent of the CPUs, gives cores back
    #[arg(long, default_value_t = 200, value_parser = number(0u32, 10_000))]
    pub low: u32,
    /// Periods in a row that must say the same before anything changes
    #[arg(long, default_value_t = 2, value_parser = number(1u32, 100))]
    pub agree: u32,
    /// Periods of low steal before `proportional` gives the first core back
    #[arg(long, default_value_t = 5, value_parser = number(1u32, 1000))]
    pub quiet: u32,
    /// Cores that are preferred whatever the steal
    #[arg(long, default_value_t = 1, value_parser = number(1u32, 8192))]
    pub floor: u32,
    /// With --enforce sched-ext: give the tasks back to EEVDF after so many periods in which all CPUs were preferred, until
    /// some are not; 0 schedules always
    #[arg(long, value_name = "PERIODS", default_value_t = 10, value_parser = number(0u32, 100_000))]
    pub stand_by: u32,
    /// Periods without a change before interrupts follow
    #[arg(long, default_value_t = 5, value_parser = number(0u32, 1000))]
    pub irq_settle: u32,
    /// With --enforce sched-ext: length of a slice in µs (100 to 100000)
    #[arg(long, default_value_t = Tunables::DEFAULT.slice_us, value_parser = number(100u64, 100_000))]
    pub slice_us: u64,
}

impl Changeable for Settings {}

impl Settings {
    /// What one value alone cannot show.
    ///
    /// # Errors
    /// Two contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.low > self.high {
            let (low, high) = (self.low, self.high);
            bail!(WrongOption(format!(
                "low is {low} and high {high}, so cores would come and go at the same steal: raise high to {low}, or lower \
                 low to {high}"
            )));
        }
        Ok(())
    }

    /// The governor's rules.
    pub fn rules(&self) -> Rules {
        Rules {
            governor: if self.governor == Governor::Step { STEP } else { PROPORTIONAL },
            low: self.low,
            high: self.high,
            agree: self.agree,
            quiet: self.quiet,
            floor: self.floor,
        }
    }
}

/// A choice of CPUs, or [`AUTO`].
fn choice(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text == AUTO {
        return Ok(text.into());
    }
    match cpulist::parse(text) {
        Ok(cpus) if cpus.is_empty() => Err("no CPU would be preferred: name some, or say auto".into()),
        Ok(cpus) => Ok(cpulist::format(&cpus)),
        Err(why) => Err(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_cli::Bare;
    use overbook_cli::changes::{change, changes};

    fn defaults() -> Settings {
        Bare::<Settings>::options_of(&[] as &[&str]).unwrap()
    }

    #[test]
    fn the_published_rule_is_one_line_away() {
        let line = "governor=step low=100 high=200 interval-ms=100 preferred=auto";
        let step = defaults().with(&changes::<Settings>(line).unwrap()).unwrap();
        let rules = Rules { governor: STEP, low: 100, high: 200, agree: 2, quiet: 5, floor: 1 };
        assert_eq!((step.rules(), step.interval_ms), (rules, 100));
        assert_eq!(step.with(&changes::<Settings>(&step.in_force()).unwrap()).unwrap(), step);
    }

    #[test]
    fn choices_are_lists_or_auto() {
        let chosen = |text: &str| defaults().with(&changes::<Settings>(text).unwrap()).unwrap().preferred;
        assert_eq!(chosen("preferred=3,0-1"), "0-1,3");
        assert_eq!(chosen("preferred=auto"), AUTO);
        for (text, expected) in [
            ("preferred=", "no CPU would be preferred"),
            ("preferred=x", "not a list of CPUs"),
            ("high=10001", "a number from 0 to 10000 belongs here"),
            ("governor=slow", "there are step, proportional"),
            ("stats=3", "nothing that may change while running is named \"stats\""),
        ] {
            let said = change::<Settings>(text).unwrap_err();
            assert!(said.contains(expected) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn thresholds_that_cross_are_refused() {
        let crossed = defaults().with(&changes::<Settings>("low=600").unwrap()).unwrap();
        assert!(crossed.check().unwrap_err().to_string().contains("raise high to"));
        // Together they may pass each other.
        defaults().with(&changes::<Settings>("low=600 high=700").unwrap()).unwrap().check().unwrap();
    }

    #[test]
    fn every_key_is_explained() {
        let manual = include_str!("../../../docs/guest.md");
        for (key, what) in Settings::keys() {
            assert!(
                !what.is_empty() && manual.contains(&format!("| `{key}` |")),
                "docs/guest.md lacks {key}"
            );
        }
    }
}
