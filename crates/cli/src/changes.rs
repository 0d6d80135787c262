// SPDX-License-Identifier: GPL-2.0-only
//! Changes while a scheduler runs: `--set KEY=VALUE` of `overbook host` and of `overbook guest`.

use crate::Bare;
use anyhow::{Result, bail};
use clap::{Args, Command};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// A table of what may change: a field is an option, and a key of `--set` (the option without its dashes).
pub trait Changeable: Args + Serialize {
    /// All keys, each with its explanation.
    fn keys() -> Vec<(String, String)> {
        let command = Self::augment_args(Command::default());
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
    fn with(&self, changes: &[Change]) -> Result<Self> {
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
        Bare::<Self>::options_of(&arguments)
    }

    /// Keys and values as they stand on the command line.
    #[doc(hidden)]
    fn pairs(&self) -> Vec<(String, String)> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return Vec::new() };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let keys = Self::keys().into_iter();
        keys.filter_map(|(key, _)| fields.get(&key).map(|value| (key, text(value)))).collect()
    }

    /// The long help of `--set`.
    fn help_of_set() -> String {
        let mut help =
            "Change the scheduler that is running, and print what is in force then; load nothing. May be \
                        given several times. Keys:\n"
                .to_string();
        for (key, what) in Self::keys() {
            help += &format!("\n  {key}: {what}");
        }
        help
    }

    /// All keys and values as `--set` takes them, one behind the other.
    fn in_force(&self) -> String {
        let words: Vec<String> = self.pairs().iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.join(" ")
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
pub fn change<S: Changeable>(text: &str) -> Result<Change, String> {
    let Some((key, value)) = text.trim().split_once('=') else {
        return Err("KEY=VALUE belongs here, as in slice-us=3000".into());
    };
    let change = Change { key: key.trim().into(), value: value.trim().into() };
    let defaults = Bare::<S>::options_of(&[] as &[&str]);
    let changed = defaults.and_then(|defaults| defaults.with(std::slice::from_ref(&change)));
    // clap names the option, which is the key.
    let why = |said: String| said.split_once(">': ").map(|(_, why)| why.to_string()).unwrap_or(said);
    // As it is printed: 02000 is 2000.
    let pairs = changed.map_err(|e| why(format!("{e:#}")))?.pairs();
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
pub fn changes<S: Changeable>(text: &str) -> Result<Vec<Change>> {
    text.split_whitespace().map(|word| change::<S>(word).map_err(anyhow::Error::msg)).collect()
}
