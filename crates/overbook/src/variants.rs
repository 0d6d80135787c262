// SPDX-License-Identifier: GPL-2.0-only
//! Scenario files with all that only the commands themselves know: their arguments in variants.

use anyhow::{Context, Result};
use overbook_cli::Bare;
use overbook_lab::Scenario;
use overbook_lab::scenario::{Source, Variant};

/// Reads a scenario with what an order changes in it, and checks everything in its variants.
///
/// # Errors
/// A mistake in a file, with its line.
pub fn read(source: Source) -> Result<Scenario> {
    let (scenario, _) = source.read()?;
    let variants_in = source.variants_of.unwrap_or(source.file);
    let text = overbook_report::json::read_text(variants_in)
        .with_context(|| format!("cannot read scenario {}", variants_in.display()))?;
    for (nth, variant) in scenario.variants.iter().enumerate() {
        if let Err((key, what)) = check(variant) {
            return Err(Scenario::wrong_variant(&text, variants_in, nth, key, what).into());
        }
    }
    Ok(scenario)
}

/// The key of the wrong arguments, and what is wrong with them.
fn check(variant: &Variant) -> Result<(), (&'static str, String)> {
    if let Some(arguments) = &variant.overbook {
        let options = Bare::<overbook_host::Options>::options_of(&unsaid(arguments));
        let options = options.map_err(|e| ("overbook", format!("{e:#}")))?;
        fit(options.unfit_for_variants()).map_err(|e| ("overbook", e))?;
    }
    if let Some(arguments) = &variant.guest {
        let options = Bare::<overbook_guest::Options>::options_of(&unsaid(arguments));
        let options = options.map_err(|e| ("guest", format!("{e:#}")))?;
        options.settings.check().map_err(|e| ("guest", format!("{e:#}")))?;
        fit(options.unfit_for_variants()).map_err(|e| ("guest", e))?;
    }
    Ok(())
}

fn fit(unfit: Option<&str>) -> Result<(), String> {
    unfit.map_or(Ok(()), |option| Err(format!("{option} is nothing that a variant can have")))
}

/// Arguments without those on how much is said, which are the program's and not the command's.
fn unsaid(arguments: &[String]) -> Vec<&str> {
    arguments
        .iter()
        .map(String::as_str)
        .filter(|a| !a.trim_start_matches('-').chars().all(|c| c == 'v'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_commands() {
        let variant = |host: Option<&str>, guest: Option<&str>| {
            let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
            Variant { overbook: host.map(words), guest: guest.map(words), ..Variant::default() }
        };
        for good in
            [variant(Some(""), None), variant(Some("-vv --slice-us 750 --relations off"), Some("--low 1"))]
        {
            assert_eq!(check(&good), Ok(()));
        }
        for (bad, key, expected) in [
            (
                variant(Some("--slice 3"), None),
                "overbook",
                "unexpected argument '--slice' found; did you mean --slice-us?",
            ),
            (variant(Some("--slice-us 1"), None), "overbook", "a number from 100 to 100000 belongs here"),
            (variant(Some("--relations full"), None), "overbook", "there are on, off"),
            (variant(Some("--json"), None), "overbook", "--json is nothing that a variant can have"),
            (variant(None, Some("--status")), "guest", "--status is nothing that a variant can have"),
            (variant(None, Some("--governor none")), "guest", "there are step, proportional"),
        ] {
            let (at, what) = check(&bad).unwrap_err();
            assert!(at == key && what.contains(expected) && !what.contains('\n'), "{what}");
        }
    }
}
