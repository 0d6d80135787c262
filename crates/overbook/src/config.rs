// SPDX-License-Identifier: GPL-2.0-only
//! Defaults from a file: `/etc/overbook.toml`, or what `OVERBOOK_CONFIG` names. A table per command; its keys are the
//! long options, its values what would stand behind them. The command line wins.

use anyhow::Result;
use clap::Command;
use clap::error::ErrorKind;
use overbook_cli::values::complaint;
use overbook_scheduler::ending::WrongOption;
use std::ffi::OsString;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const FILE: &str = "/etc/overbook.toml";

/// The table of classes of VMs, by patterns: a part of `[host]`.
const CLASSES: &str = "classes";

/// Commands that read the file.
const COMMANDS: [&str; 2] = ["host", "guest"];

/// Options of one command that ask a scheduler that runs, or are for the lab: the file's are for loading one.
const NOT_LOADING: [&str; 11] = [
    "--monitor",
    "--set",
    "--class",
    "--status",
    "--replay",
    "--clean-up",
    "--help-stats",
    "--hold",
    "--help",
    "--version",
    "-h",
];

/// The command line with the file's options put behind the command.
///
/// # Errors
/// [`WrongOption`]: the file cannot be read, or is no table of tables of options of `program`; the message says where.
pub fn with_defaults(arguments: &[OsString], program: Command) -> Result<Vec<OsString>> {
    let named = std::env::var_os("OVERBOOK_CONFIG");
    let file = named.clone().unwrap_or_else(|| FILE.into());
    let file = Path::new(&file);
    let Some((place, command)) = command_of(arguments) else { return Ok(arguments.to_vec()) };
    let asks =
        |a: &OsString| a.to_str().is_some_and(|a| NOT_LOADING.iter().any(|o| a.split('=').next() == Some(o)));
    if arguments.iter().any(asks) || (named.is_none() && !file.exists()) {
        return Ok(arguments.to_vec());
    }
    let text = overbook_report::json::read_text(file)
        .map_err(|why| WrongOption(format!("cannot read defaults from {}: {why}", file.display())))?;
    let options = options(&text, command, program)
        .map_err(|(line, what)| WrongOption(format!("{}:{line}: {what}", file.display())))?;
    let (before, after) = arguments.split_at(place + 1);
    Ok([before, &options.into_iter().map(OsString::from).collect::<Vec<_>>(), after].concat())
}

/// Where the options of this program stand, if it is a service of ours and has any: packaging/default.
pub fn service_options(arguments: &[OsString]) -> Option<String> {
    // systemd sets the first for what it starts, and the second as our units say.
    std::env::var_os("INVOCATION_ID")?;
    let (options, (_, command)) = (std::env::var("OPTIONS").ok()?, command_of(arguments)?);
    let file = format!("/etc/default/overbook-{command}");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let line = text.lines().position(|line| line.trim_start().starts_with("OPTIONS="));
    match (options.trim().is_empty(), line) {
        (true, _) => None,
        (_, Some(n)) => Some(format!("{file}:{}", n + 1)),
        (_, None) => Some(file),
    }
}

/// The command, if it has defaults, and where it stands. No option that stands before it has a value of its own.
fn command_of(arguments: &[OsString]) -> Option<(usize, &'static str)> {
    let mut words = arguments.iter().enumerate().skip(1);
    let (place, word) = words.find(|(_, word)| !word.as_encoded_bytes().starts_with(b"-"))?;
    Some((place, *COMMANDS.iter().find(|c| word.as_os_str() == **c)?))
}

/// A line, and what is wrong there.
type Mistake = (usize, String);

/// The options of one command in a file's text; all of them are checked, as `program` has them.
fn options(text: &str, command: &str, program: Command) -> Result<Vec<String>, Mistake> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let tables = DeTable::parse(text)
        .map_err(|e| (line(e.span().map_or(0, |span| span.start)), e.message().replace('\n', "; ")))?;
    let mut options = Vec::new();
    for (name, table) in tables.get_ref() {
        let here = line(name.span().start);
        let classes = name.get_ref() == CLASSES;
        let name = if classes { "host" } else { name.get_ref().as_ref() };
        if !COMMANDS.contains(&name) && !matches!(table.get_ref(), DeValue::Table(_)) {
            let what = format!("{name} stands above all tables: write [host] or [guest] in a line before it");
            return Err((here, what));
        }
        if !COMMANDS.contains(&name) {
            let what = format!("[{name}] is no command with defaults: there are {}", COMMANDS.join(" and "));
            return Err((here, what));
        }
        let DeValue::Table(table) = table.get_ref() else {
            return Err((here, format!("{name} is no table: write [{name}]")));
        };
        for (key, value) in table {
            let here = line(key.span().start);
            let key = if classes { of_class(key.get_ref()) } else { Ok(key.to_string()) };
            let key = key.map_err(|what| (here, what))?;
            let option = option(&key, value).map_err(|what| (here, what))?;
            fits(option.as_deref(), &key, name, &program).map_err(|what| (here, what))?;
            options.extend(option.filter(|_| name == command));
        }
    }
    Ok(options)
}

/// The option that a key of `[classes]` stands for.
fn of_class(key: &str) -> Result<String, String> {
    match key {
        "latency" | "batch" => Ok(format!("{key}-vms")),
        _ => Err(format!("[{CLASSES}] has latency and batch, and no {key}")),
    }
}

/// An option as it stands on the command line; nothing if it is switched off.
fn option(key: &str, value: &Spanned<DeValue>) -> Result<Option<String>, String> {
    Ok(match value.get_ref() {
        DeValue::Boolean(true) => Some(format!("--{key}")),
        DeValue::Boolean(false) => None,
        DeValue::Array(items) => {
            let words: Vec<String> = items.iter().map(word).collect::<Result<_, _>>()?;
            Some(format!("--{key}={}", words.join(",")))
        }
        _ => Some(format!("--{key}={}", word(value)?)),
    })
}

/// Whether a command has this option, and takes this value.
fn fits(option: Option<&str>, key: &str, command: &str, program: &Command) -> Result<(), String> {
    if NOT_LOADING.iter().any(|o| o.trim_start_matches('-') == key) {
        return Err(format!("{key} belongs on the command line: defaults are for loading a scheduler"));
    }
    let name = program.get_name().to_string();
    let words = match option {
        Some(option) => vec![name, command.into(), option.into()],
        // Switched off, but known.
        None => vec![name, command.into(), format!("--{key}")],
    };
    program.clone().try_get_matches_from(words).map(drop).map_err(|why| match why.kind() {
        ErrorKind::TooManyValues => format!("{key} takes no value: write `{key} = true`, or false"),
        _ => complaint(&why),
    })
}

fn word(value: &Spanned<DeValue>) -> Result<String, String> {
    Ok(match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        _ => {
            return Err(
                "this is no value of an option: write a text, a number, true, or a list of these".into()
            );
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    fn of(text: &str, command: &str) -> Result<Vec<String>, Mistake> {
        options(text, command, Cli::command())
    }

    #[test]
    fn only_the_command_itself_has_defaults() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            command_of(&words)
        };
        assert_eq!(of("overbook host"), Some((1, "host")));
        assert_eq!(of("overbook -v guest --low=1"), Some((2, "guest")));
        assert_eq!(of("overbook lab guest"), None);
        assert_eq!(of("overbook tunnel run x.toml --variant host"), None);
        assert_eq!(of("overbook --version"), None);
    }

    #[test]
    fn a_table_becomes_options() {
        let text =
            "[host]\nrelations = \"off\"\nslice-us = 2000\ncosts = true\njson = false\n[guest]\nlow = 100\n";
        let mut host = of(text, "host").unwrap();
        host.sort();
        assert_eq!(host, ["--costs", "--relations=off", "--slice-us=2000"]);
        assert_eq!(of(text, "guest").unwrap(), ["--low=100"]);
        assert!(of("", "host").unwrap().is_empty());
    }

    #[test]
    fn classes_are_options_of_the_host() {
        let text =
            "[classes]\nlatency = [\"web-*\", \"cgroup:/prod/*\"]\nbatch = \"ci-*\"\n[guest]\nlow = 100\n";
        let mut host = of(text, "host").unwrap();
        host.sort();
        assert_eq!(host, ["--batch-vms=ci-*", "--latency-vms=web-*,cgroup:/prod/*"]);
        assert_eq!(of(text, "guest").unwrap(), ["--low=100"]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, what) in [
            ("[hosts]\n", 1, "[hosts] is no command"),
            ("[host]\ncosts = { y = 1 }\n", 2, "is no value of an option"),
            ("[host]\n\nx = \n", 3, ""),
            ("host = 1\n", 1, "host is no table"),
            ("slice-us = 3000\n", 1, "write [host] or [guest] in a line before it"),
            ("[host]\ncosts = \"yes\"\n", 2, "costs takes no value: write `costs = true`, or false"),
            ("[host]\ncosts = true\n# a word\nslice_us = 3000\n", 4, "did you mean --slice-us?"),
            ("[host]\nnonsense = 1\n", 2, "unexpected argument '--nonsense' found"),
            ("[host]\nnonsense = false\n", 2, "unexpected argument '--nonsense' found"),
            ("[guest]\nlow = 100\n[host]\nslice-us = \"long\"\n", 4, "a number from 100 to 100000"),
            ("[host]\nrelations = \"x\"\n", 2, "there are on, off"),
            ("[host]\nset = \"slice-us=3000\"\n", 2, "belongs on the command line"),
            ("[host]\nmonitor = 1\n", 2, "belongs on the command line"),
            ("[host]\nclass = \"web=batch\"\n", 2, "belongs on the command line"),
            ("[classes]\nnormal = [\"web\"]\n", 2, "[classes] has latency and batch, and no normal"),
            ("[classes]\nlatency = [\"a[\"]\n", 2, "\"a[\" is no pattern"),
            ("[classes]\nlatency = true\n", 2, "latency-vms"),
        ] {
            let (at, error) = of(text, "host").unwrap_err();
            assert!(error.contains(what) && at == line, "{text:?}: {at}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_shipped_file_is_sound_and_so_is_every_option_in_its_comments() {
        let text = include_str!("../../../packaging/overbook.toml");
        assert!(of(text, "host").unwrap().is_empty());
        let all = text.replace("# relations", "relations").replace("# slice", "slice");
        let all = all.replace("# latency", "latency").replace("# batch", "batch");
        let all = all.replace("# governor", "governor").replace("# high", "high").replace("# low", "low");
        assert_eq!((of(&all, "host").unwrap().len(), of(&all, "guest").unwrap().len()), (4, 3));
    }
}
