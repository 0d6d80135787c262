// SPDX-License-Identifier: GPL-2.0-only
//! Tables of documents, written from the results that they name.
//!
//! A comment says which: `<!-- table KIND: FILE… -->`, with files relative to the document; `spin_for_locks|FILE` calls a
//! file's rows so, instead of by its name. What follows is ours, up to `<!-- end of table -->`. The picture of a table of
//! loads is a file of its own: `<!-- picture FILE.svg: FILE… -->`.

use anyhow::{Context, Result, bail};
use overbook_cli::output::Stdout;
use overbook_report::json;
use overbook_report::markdown::{self, Kind};
use overbook_report::schema::Report;
use overbook_report::{loads, plot};
use std::io::Write;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- table ";
const PICTURE: &str = "<!-- picture ";
const END: &str = "<!-- end of table -->";

/// Writes the tables of documents anew; or only says which are not what their results say, and fails.
pub fn write(documents: &[PathBuf], only_check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for document in documents {
        let text =
            json::read_text(document).with_context(|| format!("cannot read {}", document.display()))?;
        let folder = document.parent().unwrap_or(Path::new(""));
        let (fresh, tables) = renewed(&text, folder).with_context(|| format!("in {}", document.display()))?;
        for (file, svg) in pictures(&text, folder).with_context(|| format!("in {}", document.display()))? {
            // One that is not there differs.
            if std::fs::read_to_string(&file).is_ok_and(|old| old == svg) {
                continue;
            }
            if !only_check {
                json::write_atomically(&file, &svg)?;
            }
            stale.push(file.display().to_string());
        }
        if fresh != text {
            if !only_check {
                json::write_atomically(document, &fresh)?;
            }
            stale.push(document.display().to_string());
        }
        writeln!(Stdout, "{}: {tables} tables", document.display())?;
    }
    if only_check && !stale.is_empty() {
        bail!(
            "{} are not what their results say: run `overbook lab tables` with these files",
            stale.join(" and ")
        );
    }
    Ok(())
}

/// The pictures that a document orders: their files, and what they should be.
fn pictures(text: &str, folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let orders = text.lines().filter_map(|line| line.strip_prefix(PICTURE)?.strip_suffix("-->"));
    let picture = |order: &str| {
        let (file, files) = order
            .split_once(':')
            .with_context(|| format!("`{PICTURE}{order}-->` names no files after a colon"))?;
        let reports = called(read(files, folder)?);
        let reports: Vec<&Report> = reports.iter().collect();
        let svg = plot::loads(&loads::loads(&reports))?;
        Ok((folder.join(file.trim()), svg))
    };
    orders.map(picture).collect()
}

/// Results, and what their rows are called if not by their names.
fn read(files: &str, folder: &Path) -> Result<Vec<(Option<String>, Report)>> {
    let report = |word: &str| {
        let (called, file) = word.split_once('|').map_or((None, word), |(called, file)| (Some(called), file));
        Ok((called.map(|words| words.replace('_', " ")), json::read(&folder.join(file))?))
    };
    files.split_whitespace().map(report).collect()
}

/// Results by the names that their rows are to have.
fn called(reports: Vec<(Option<String>, Report)>) -> Vec<Report> {
    let renamed = |(called, mut report): (Option<String>, Report)| {
        report.scenario.name = called.unwrap_or(report.scenario.name);
        report
    };
    reports.into_iter().map(renamed).collect()
}

/// A document with its tables made anew, and how many there are.
fn renewed(text: &str, folder: &Path) -> Result<(String, usize)> {
    let (mut fresh, mut rest, mut tables) = (String::new(), text, 0);
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        let (order, after) = from
            .split_once("-->")
            .with_context(|| format!("`{}` has no end", from.lines().next().unwrap_or_default()))?;
        let (_, after) = after.split_once(END).with_context(|| format!("no `{END}` follows `{order}-->`"))?;
        fresh += before;
        fresh += &format!("{order}-->\n{}\n{END}", made(order, folder)?);
        rest = after;
        tables += 1;
    }
    Ok((fresh + rest, tables))
}

/// What stands between the two comments.
fn made(order: &str, folder: &Path) -> Result<String> {
    let words = order.strip_prefix(BEGIN).unwrap_or(order);
    let (kind, files) =
        words.split_once(':').with_context(|| format!("`{order}-->` names no files after a colon"))?;
    let kind = Kind::named(kind.trim()).with_context(|| {
        let known: Vec<&str> = Kind::NAMES.iter().map(|(name, _)| *name).collect();
        format!("there is no table `{}`: {}", kind.trim(), known.join(", "))
    })?;
    let reports = read(files, folder)?;
    // The commands need the names.
    let source = markdown::source(&reports.iter().map(|(_, report)| report).collect::<Vec<_>>());
    let reports = called(reports);
    let table = markdown::table(kind, &reports.iter().collect::<Vec<_>>());
    // A choice of rows is of tables that stand elsewhere, with their commands.
    Ok(if kind == Kind::Choice { table.trim_end().into() } else { format!("{table}\n{source}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_made_between_its_comments_and_nothing_else_changes() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let text = "before\n<!-- table work: report.json -->\nold\n<!-- end of table -->\nafter\n";
        let (fresh, tables) = renewed(text, &folder).unwrap();
        assert_eq!(tables, 1);
        assert!(fresh.starts_with("before\n<!-- table work: report.json -->\n| scenario |"), "{fresh}");
        assert!(
            fresh.ends_with(".toml --repetitions 1 --kernel 6.18`\n<!-- end of table -->\nafter\n"),
            "{fresh}"
        );
        assert_eq!(renewed(&fresh, &folder).unwrap().0, fresh, "the second time nothing changes");
    }

    #[test]
    fn rows_may_be_called_otherwise() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let text = "<!-- table loads: spin_for_locks|report.json -->\n<!-- end of table -->";
        let fresh = renewed(text, &folder).unwrap().0;
        let named = renewed(&text.replace("spin_for_locks|", ""), &folder).unwrap().0;
        assert!(fresh.contains("\n| spin for locks |"), "{fresh}");
        assert_eq!(fresh.lines().rev().nth(1), named.lines().rev().nth(1), "the command is the same");
    }

    #[test]
    fn a_picture_is_a_file_beside_the_document() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report.json");
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        std::fs::write(
            &page,
            format!("<!-- picture loads.svg: {} -->\n![loads](loads.svg)\n", data.display()),
        )
        .unwrap();
        let pages = [page];
        assert!(write(&pages, true).is_err(), "it is not there yet");
        write(&pages, false).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("loads.svg")).unwrap();
        assert!(svg.contains("<svg") && svg.contains("Overbook"), "{svg}");
        write(&pages, true).unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        let why = |text: &str| format!("{:#}", renewed(text, Path::new("/nowhere")).unwrap_err());
        assert!(why("<!-- table work: x.json -->\n").contains("no `<!-- end of table -->` follows"));
        assert!(why("<!-- table work: x.json").contains("has no end"));
        assert!(why("<!-- table work -->\n<!-- end of table -->").contains("names no files"));
        assert!(why("<!-- table odd: x -->\n<!-- end of table -->").contains("work, shares, guests"));
        assert!(why("<!-- table work: x.json -->\n<!-- end of table -->").contains("/nowhere/x.json"));
    }
}
