// SPDX-License-Identifier: GPL-2.0-only
//! Defaults from a file: `/etc/overbook.toml`, or what `OVERBOOK_CONFIG` names. A table per command; its keys are the
//! long options, its values what would stand behind them. The command line wins.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::Path;

const FILE: &str = "/etc/overbook.toml";

/// Commands that read the file.
const COMMANDS: [&str; 2] = ["host", "guest"];

/// Options of one command that ask a scheduler that runs, or are for the lab: the file's are for loading one.
const NOT_LOADING: [&str; 8] =
    ["--monitor", "--switch", "--preferred", "--status", "--replay", "--help-stats", "--hold", "--help"];

/// The command line with the file's options put behind the command.
///
/// # Errors
/// The file cannot be read, or is no table of tables of options; the message says where.
pub fn with_defaults(arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let named = std::env::var_os("OVERBOOK_CONFIG");
    let file = named.clone().unwrap_or_else(|| FILE.into());
    let file = Path::new(&file);
    let Some(place) = arguments.iter().position(|a| COMMANDS.iter().any(|c| a == c)) else {
        return Ok(arguments);
    };
    let asks =
        |a: &OsString| a.to_str().is_some_and(|a| NOT_LOADING.iter().any(|o| a.split('=').next() == Some(o)));
    if arguments.iter().any(asks) || (named.is_none() && !file.exists()) {
        return Ok(arguments);
    }
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read defaults from {}", file.display()))?;
    let command = arguments[place].to_str().unwrap_or_default();
    let options = options(&text, command).with_context(|| file.display().to_string())?;
    let (before, after) = arguments.split_at(place + 1);
    Ok([before, &options.into_iter().map(OsString::from).collect::<Vec<_>>(), after].concat())
}

/// The options of one command in a file's text.
fn options(text: &str, command: &str) -> Result<Vec<String>> {
    let tables: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(0, |span| text[..span.start].matches('\n').count()) + 1;
        anyhow::anyhow!("line {line}: {}", e.message().replace('\n', "; "))
    })?;
    if let Some(other) = tables.keys().find(|key| !COMMANDS.contains(&key.as_str())) {
        bail!("[{other}] is no command with defaults: there are {}", COMMANDS.join(" and "));
    }
    let Some(table) = tables.get(command) else { return Ok(Vec::new()) };
    let table = table.as_table().with_context(|| format!("{command} is no table: write [{command}]"))?;
    let mut options = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Boolean(true) => options.push(format!("--{key}")),
            toml::Value::Boolean(false) => {}
            toml::Value::Array(items) => {
                let words: Vec<String> = items.iter().map(word).collect::<Result<_>>()?;
                options.push(format!("--{key}={}", words.join(",")));
            }
            value => options.push(format!("--{key}={}", word(value)?)),
        }
    }
    Ok(options)
}

fn word(value: &toml::Value) -> Result<String> {
    Ok(match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        other => bail!("{other} is no value of an option: write a text, a number, true, or a list of these"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_options() {
        let text = "[host]\nyield-policy = \"credit\"\nslice-us = 2000\ntiers = [\"receiver\", \"kernel\"]\ncosts = true\n\
                    spin-probe = false\n[guest]\nlow = 100\n";
        let mut host = options(text, "host").unwrap();
        host.sort();
        assert_eq!(host, ["--costs", "--slice-us=2000", "--tiers=receiver,kernel", "--yield-policy=credit"]);
        assert_eq!(options(text, "guest").unwrap(), ["--low=100"]);
        assert!(options("", "host").unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("[hosts]\n", "[hosts] is no command"),
            ("[host]\nx = { y = 1 }\n", "is no value of an option"),
            ("[host]\n\nx = \n", "line 3"),
            ("host = 1\n", "host is no table"),
        ] {
            let error = format!("{:#}", options(text, "host").unwrap_err());
            assert!(error.contains(what), "{text:?}: {error}");
        }
    }
}
