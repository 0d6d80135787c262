// SPDX-License-Identifier: GPL-2.0-only
//! Man pages and shell completions, made from the command line's own definition and from [`manual`].

mod manual;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::{Generator, Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use overbook_report::json::write_atomically;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Generate {
    /// Folder to write to: `man/` and `completions/` are made in it
    folder: PathBuf,
}

impl Generate {
    /// Writes a page per command, and completions for bash, zsh and fish.
    pub fn run(self, command: Command) -> Result<()> {
        let mut command = shown(&command);
        let folder = |name: &str| -> Result<PathBuf> {
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            Ok(folder)
        };
        let completions = folder("completions")?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            generate(shell, &mut command, "overbook", &mut text);
            let text = String::from_utf8(text).context("a completion is no text")?;
            write_atomically(&completions.join(shell.file_name("overbook")), &text)?;
        }
        command.build();
        write_pages(&command, None, &folder("man")?)
    }
}

/// A command as people see it: nothing hidden, and no `help` commands, which only repeat the others.
fn shown(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned())
        .disable_help_subcommand(true)
        .propagate_version(true)
        .subcommand_required(command.is_subcommand_required_set())
        .arg_required_else_help(command.is_arg_required_else_help_set())
        .args(command.get_arguments())
        .groups(command.get_groups())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown));
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        copy = copy.long_about(about.clone());
    }
    if let Some(help) = command.get_after_help() {
        copy = copy.after_help(help.clone());
    }
    copy
}

/// Writes the pages of a command, whose own place in the tree is `parent`'s, and of those below it.
fn write_pages(command: &Command, parent: Option<&str>, folder: &Path) -> Result<()> {
    for sub in command.get_subcommands() {
        write_pages(sub, Some(name_of(command)), folder)?;
    }
    let file = folder.join(format!("{}.1", name_of(command)));
    let text = page(command, parent)?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// `overbook-lab-run` of `overbook lab run`.
fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, parent: Option<&str>) -> Result<Vec<u8>> {
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone()).source(format!("overbook {version}")).manual("Overbook");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    more(command, parent).to_writer(&mut text)?;
    Ok(text)
}

/// What the command line's definition does not say.
fn more(command: &Command, parent: Option<&str>) -> Roff {
    let name = name_of(command);
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for (what, line) in manual::examples(name) {
        roff.control("PP", []);
        roff.text([roman(format!("{what}:"))]);
        roff.control("PP", []);
        roff.control("RS", ["4"]);
        roff.text([bold(*line)]);
        roff.control("RE", []);
    }
    roff.control("SH", ["FILES"]);
    for (file, what) in manual::files(name) {
        roff.control("TP", []);
        roff.text([bold(file)]);
        roff.text([roman(what)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut pages: Vec<String> = parent.into_iter().map(|name| format!("{name}(1)")).collect();
    pages.extend(command.get_subcommands().map(|sub| format!("{}(1)", name_of(sub))));
    pages.extend(manual::also(name).iter().map(|page| page.to_string()));
    let last = pages.len() - 1;
    for (nth, page) in pages.iter().enumerate() {
        let (name, section) = page.split_at(page.len() - "(1)".len());
        roff.text([bold(name), roman(section), roman(if nth < last { "," } else { "" })]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeMap;
    use tempfile::TempDir;

    /// What is generated, by name.
    fn generated(kind: &str) -> BTreeMap<String, String> {
        let folder = TempDir::new().unwrap();
        Generate { folder: folder.path().into() }.run(Cli::command()).unwrap();
        let files = fs::read_dir(folder.path().join(kind)).unwrap().flatten();
        files
            .map(|file| {
                let text = fs::read_to_string(file.path()).unwrap();
                (file.file_name().to_string_lossy().into_owned(), text)
            })
            .collect()
    }

    /// Commands that are shown, as on the command line.
    fn commands(command: &Command, above: &str) -> Vec<String> {
        let name = format!("{above}{}", command.get_name());
        let below = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let below = below.flat_map(|sub| commands(sub, &format!("{name} ")));
        below.chain([name.clone()]).collect()
    }

    /// Sections of a page, with their text as a reader sees it.
    fn sections(page: &str) -> BTreeMap<String, String> {
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        let mut name = String::new();
        for line in page.lines() {
            match line.strip_prefix(".SH ") {
                Some(heading) => name = heading.trim_matches('"').to_string(),
                None if line.starts_with('.') => {}
                None => {
                    let plain = line
                        .replace("\\fB", "")
                        .replace("\\fR", "")
                        .replace("\\-", "-")
                        .replace("\\*(Aq", "'");
                    *found.entry(name.clone()).or_default() += &(plain + "\n");
                }
            }
        }
        found
    }

    #[test]
    fn every_command_has_a_page_and_no_other_has() {
        let mut wanted: Vec<String> =
            commands(&Cli::command(), "").iter().map(|name| name.replace(' ', "-") + ".1").collect();
        wanted.sort();
        assert_eq!(generated("man").into_keys().collect::<Vec<_>>(), wanted);
        assert!(wanted.iter().all(|page| !page.contains("help")), "{wanted:?}");
    }

    #[test]
    fn pages_have_examples_that_the_command_line_takes() {
        let names = commands(&Cli::command(), "");
        for name in names {
            let page = name.replace(' ', "-");
            let examples = manual::examples(&page);
            assert!(!examples.is_empty(), "{page} has no example: see generate/manual.rs");
            let shown = &sections(&generated("man")[&format!("{page}.1")])["EXAMPLES"];
            for (what, line) in examples {
                assert!(shown.contains(line) && shown.contains(what), "{page}: {line}\n{shown}");
                let line = line.strip_prefix("sudo ").unwrap_or(line);
                assert!(line.starts_with(&name), "{page}: {line} is about something else");
                if let Err(error) = Cli::command().try_get_matches_from(line.split(' ')) {
                    panic!("{page}: {line}: {error}");
                }
            }
        }
    }

    #[test]
    fn pages_name_files_and_pages_that_are_there() {
        let pages = generated("man");
        for (page, text) in &pages {
            let sections = sections(text);
            assert!(sections["FILES"].lines().next().unwrap().starts_with(['/', '$']), "{page}");
            for other in sections["SEE ALSO"].lines().map(|line| line.trim_end_matches(',')) {
                let ours = other.strip_suffix("(1)").filter(|name| name.starts_with("overbook"));
                assert!(
                    ours.is_none_or(|name| pages.contains_key(&format!("{name}.1"))),
                    "{page}: there is no {other}"
                );
                assert_ne!(other.replace("(1)", ".1"), *page, "it names itself");
            }
        }
    }

    #[test]
    fn completions_offer_what_is_for_people() {
        let files = generated("completions");
        assert_eq!(files.len(), 3);
        for (name, text) in files {
            assert!(text.contains("patience-ms") && text.contains("kernels"), "{name}");
            for word in ["__vm", "guest-keeper", "subcmd__help", "generate"] {
                assert!(!text.contains(word), "{name} offers {word}");
            }
        }
    }
}
