// SPDX-License-Identifier: GPL-2.0-only
//! Values of options, refused in words that people use.

use anyhow::Result;
use clap::ValueEnum;
use clap::error::{ContextKind, ContextValue};
use serde::Serialize;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

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

/// A number within bounds, both included.
pub fn number<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    // Not a number is beyond all bounds.
    move |text| match text.trim().parse::<T>() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("a number from {least} to {most} belongs here")),
    }
}

/// Seconds between two looks at something: 0.1 to 86400.
pub fn seconds(text: &str) -> Result<f64, String> {
    number(0.1, 86_400.0)(text)
}

/// What [`seconds`] has accepted, as a duration.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1))
}

/// What clap complains of, as one sentence without the usage.
pub fn complaint(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedValue].into_iter().find_map(|kind| {
        match error.get(kind) {
            Some(ContextValue::String(name)) => Some(name.clone()),
            Some(ContextValue::Strings(names)) => names.first().cloned(),
            _ => None,
        }
    });
    match (error.get(ContextKind::ValidValue), suggested) {
        (_, Some(name)) => format!("{first}; did you mean {name}?"),
        (Some(ContextValue::Strings(values)), None) if !values.is_empty() => {
            format!("{first}; there are {}", values.join(", "))
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_refused_in_words() {
        assert_eq!(number(1u32, 1000)("7"), Ok(7));
        for wrong in ["0", "1001", "-1", "x", "", "1.5"] {
            assert_eq!(number(1u32, 1000)(wrong).unwrap_err(), "a number from 1 to 1000 belongs here");
        }
        for wrong in ["nan", "inf", "-1", "0", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
    }
}
