// SPDX-License-Identifier: GPL-2.0-only
//! What may change while the scheduler runs: options of `overbook host`, and keys of `overbook host --set`.

use crate::options::Bare;
use crate::values::number;
use anyhow::{Result, bail};
use clap::{Args, Command, ValueEnum};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Do it
    On,
    /// Leave it
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// The one table: a field here is an option, a key of `--set` (the option without its dashes) and a line of the manual;
/// only [`crate::scheduler::Scheduler::set`] must know what it does. docs/host.md explains each.
#[derive(Args, Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// Length of a slice in µs (100 to 100000): what a task may run before others are asked again. Slices end at ticks
    /// unless somebody preempts
    #[arg(long, default_value_t = 3000, value_parser = number(100u64, 100_000))]
    pub slice_us: u64,
    /// A task that has been queued for this long, in ms (up to 25000), goes before others; 0: none does
    #[arg(long, default_value_t = 10_000, value_parser = number(0u64, 25_000))]
    pub patience_ms: u64,
    /// Whether the receivers of vCPUs' IPIs are known, by probes on KVM
    #[arg(long, value_enum, default_value = "on")]
    pub relations: Switch,
}

impl Settings {
    /// All keys, each with its explanation.
    pub fn keys() -> Vec<(String, String)> {
        let command = Settings::augment_args(Command::default());
        let of = |arg: &clap::Arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            Some((arg.get_long()?.to_string(), help))
        };
        command.get_arguments().filter_map(of).collect()
    }

    /// The same with changes.
    ///
    /// # Errors
    /// A key is none, or does not take its value; one sentence.
    pub fn with(&self, changes: &[Change]) -> Result<Settings> {
        let mut pairs = self.pairs();
        for Change { key, value } in changes {
            match pairs.iter_mut().find(|(own, _)| own == key) {
                Some(pair) => pair.1.clone_from(value),
                None => {
                    let keys: Vec<String> = pairs.into_iter().map(|(own, _)| own).collect();
                    bail!(
                        "nothing that may change while running is named {key:?}; there are {}",
                        keys.join(", ")
                    );
                }
            }
        }
        let arguments: Vec<String> = pairs.iter().map(|(key, value)| format!("--{key}={value}")).collect();
        Bare::<Settings>::options_of(&arguments)
    }

    /// Keys and values as they stand on the command line.
    fn pairs(&self) -> Vec<(String, String)> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return Vec::new() };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let keys = Settings::keys().into_iter();
        keys.filter_map(|(key, _)| fields.get(&key).map(|value| (key, text(value)))).collect()
    }

    /// The long help of `--set`.
    pub(crate) fn help_of_set() -> String {
        let mut help =
            "Change the scheduler that is running, and print what is in force then; load nothing. May be \
                        given several times. Keys:\n"
                .to_string();
        for (key, what) in Settings::keys() {
            help += &format!("\n  {key}: {what}");
        }
        help
    }
}

/// As `--set` takes it, one behind the other.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let words: Vec<String> = self.pairs().iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

/// A key and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The option without its dashes.
    pub key: String,
    /// As it stands behind the option.
    pub value: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// Reads `KEY=VALUE`, and sees whether there is such a key that takes such a value.
///
/// # Errors
/// One of these is not so; one sentence.
pub fn change(text: &str) -> Result<Change, String> {
    let Some((key, value)) = text.trim().split_once('=') else {
        return Err("KEY=VALUE belongs here, as in slice-us=3000".into());
    };
    let change = Change { key: key.trim().into(), value: value.trim().into() };
    let defaults = Bare::<Settings>::options_of(&[] as &[&str]);
    let changed = defaults.and_then(|defaults| defaults.with(std::slice::from_ref(&change)));
    // As it is printed: 02000 is 2000.
    let pairs = changed.map_err(|e| format!("{e:#}"))?.pairs();
    Ok(pairs
        .into_iter()
        .find(|(key, _)| *key == change.key)
        .map_or(change, |(key, value)| Change { key, value }))
}

/// Whether what is in force has these changes, of two for one key the later.
pub fn are_in(wanted: &[Change], in_force: &str) -> bool {
    let of = |word: &str| {
        wanted.iter().rev().find(|change| word.split_once('=').is_some_and(|(key, _)| key == change.key))
    };
    in_force.split(' ').all(|word| of(word).is_none_or(|change| change.to_string() == word))
}

/// Reads several, with spaces between.
///
/// # Errors
/// As [`change`].
pub fn changes(text: &str) -> Result<Vec<Change>> {
    text.split_whitespace().map(|word| change(word).map_err(anyhow::Error::msg)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Settings {
        Bare::<Settings>::options_of(&[] as &[&str]).unwrap()
    }

    #[test]
    fn what_is_in_force_is_what_set_takes() {
        let text = defaults().to_string();
        assert_eq!(text, "slice-us=3000 patience-ms=10000 relations=on");
        assert_eq!(defaults().with(&changes(&text).unwrap()).unwrap(), defaults());
        assert_eq!(Settings::keys().len(), text.split(' ').count());
    }

    #[test]
    fn changes_leave_the_rest_as_it_is() {
        let once = defaults().with(&changes("slice-us=2000 relations=off").unwrap()).unwrap();
        let twice = once.with(&changes("patience-ms=100").unwrap()).unwrap();
        assert_eq!(twice, Settings { slice_us: 2000, relations: Switch::Off, patience_ms: 100 });
        // Of two for one key, the later one counts.
        assert_eq!(defaults().with(&changes("slice-us=200 slice-us=300").unwrap()).unwrap().slice_us, 300);
    }

    #[test]
    fn what_could_not_be_done_shows() {
        let (wanted, before) = (changes("slice-us=200 slice-us=0300").unwrap(), defaults());
        assert!(!are_in(&wanted, &before.to_string()));
        assert!(are_in(&wanted, &before.with(&wanted).unwrap().to_string()));
        assert!(are_in(&changes("relations=on").unwrap(), &before.to_string()));
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        for (text, expected) in [
            ("slice-us", "KEY=VALUE belongs here"),
            (
                "slice=3",
                "nothing that may change while running is named \"slice\"; there are slice-us, patience-ms",
            ),
            ("stats=3", "nothing that may change while running is named \"stats\""),
            ("=", "nothing that may change while running is named \"\""),
            ("slice-us=", "a number from 100 to 100000 belongs here"),
            ("slice-us=fast", "a number from 100 to 100000 belongs here"),
            ("relations=full", "there are on, off"),
            ("relations=", "there are on, off"),
        ] {
            let said = change(text).unwrap_err();
            assert!(said.contains(expected) && !said.contains('\n'), "{text}: {said}");
        }
        assert_eq!(changes("slice-us=100 relations=off").unwrap().len(), 2);
        assert!(changes("slice-us=100 relations=offf").is_err());
    }

    #[test]
    fn every_key_is_explained() {
        let manual = include_str!("../../../docs/host.md");
        for (key, what) in Settings::keys() {
            assert!(!what.is_empty() && manual.contains(&format!("| `{key}` |")), "docs/host.md lacks {key}");
        }
    }
}
