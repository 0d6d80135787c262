// SPDX-License-Identifier: GPL-2.0-only
//! `extends = "FILE"`: a scenario that is another one but for what it says itself.

use anyhow::{Context, Result, bail};
use std::path::Path;
use toml_edit::{DocumentMut, TableLike};

/// The key, at the top of a scenario.
pub const KEY: &str = "extends";

/// Files in a chain; more are a mistake, or a circle.
const LONGEST: usize = 4;

/// The whole text of a scenario: what `text`, of the file at `path`, says, on top of what it extends. None if it extends
/// nothing. Tables are joined key by key; a list of tables (`[[vm]]`, `[[variant]]`) replaces the other's as a whole.
///
/// # Errors
/// What it extends is no file name, cannot be read, is no TOML, or leads back to itself.
pub fn whole(text: &str, path: &Path) -> Result<Option<String>> {
    let Ok(mut scenario) = text.parse::<DocumentMut>() else { return Ok(None) };
    let (mut next, mut at) = (scenario.remove(KEY), path.to_path_buf());
    if next.is_none() {
        return Ok(None);
    }
    let mut files = 1;
    while let Some(name) = next.take() {
        let name = name
            .as_str()
            .with_context(|| format!("{KEY} is not the name of a file, as in {KEY} = \"lock.toml\""))?;
        files += 1;
        if files > LONGEST {
            bail!("{KEY} leads from file to file more than {LONGEST} times, or in a circle");
        }
        at = at.parent().unwrap_or(Path::new("")).join(name);
        let below = overbook_report::json::read_text(&at)
            .with_context(|| format!("{KEY}: cannot read {}", at.display()))?;
        let mut below: DocumentMut =
            below.parse().with_context(|| format!("{KEY}: {} is no TOML", at.display()))?;
        next = below.remove(KEY);
        join(below.as_table_mut(), scenario.as_table())?;
        scenario = below;
    }
    Ok(Some(scenario.to_string()))
}

/// Puts a table on top of another.
fn join(below: &mut dyn TableLike, above: &dyn TableLike) -> Result<()> {
    for (key, item) in above.iter() {
        let Some(there) = below.get_mut(key) else {
            below.insert(key, item.clone());
            continue;
        };
        let Some(table) = there.as_table_like_mut() else {
            *there = item.clone();
            continue;
        };
        let item = item.as_table_like();
        join(table, item.with_context(|| format!("{key} is a table in what this scenario extends"))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use std::fs;

    const BELOW: &str = "# c\ntitle = \"t\"\n[host]\ncpus = 4\ndilation = 2.0\n[[vm]]\ncount = 2\nvcpus = 4\npattern = \"lock\"\n";

    fn read(files: &[(&str, &str)]) -> Result<Scenario> {
        let dir = tempfile::tempdir()?;
        for (name, text) in files {
            fs::write(dir.path().join(name), text)?;
        }
        Ok(Scenario::read(&dir.path().join(files[0].0))?.0)
    }

    #[test]
    fn tables_are_joined_and_lists_replaced() {
        let above = "extends = \"b.toml\"\ntitle = \"u\"\n[host]\ncpus = 8\n[measure]\nrepetitions = 7\n";
        let scenario = read(&[("a.toml", above), ("b.toml", BELOW)]).unwrap();
        assert_eq!((scenario.title.as_str(), scenario.host.cpus, scenario.host.dilation), ("u", 8, 2.0));
        assert_eq!((scenario.measure.repetitions, scenario.vms[0].count), (7, 2));
        let inline =
            BELOW.replace("[host]\ncpus = 4\ndilation = 2.0\n", "host = { cpus = 4, dilation = 2.0 }\n");
        let scenario = read(&[("a.toml", above), ("b.toml", &inline)]).unwrap();
        assert_eq!((scenario.host.cpus, scenario.host.dilation), (8, 2.0));
        let vm = "extends = \"a.toml\"\n[[vm]]\nvcpus = 2\npattern = \"ipi\"\n";
        let scenario = read(&[("c.toml", vm), ("a.toml", above), ("b.toml", BELOW)]).unwrap();
        assert_eq!((scenario.vms.len(), scenario.vms[0].vcpus, scenario.host.cpus), (1, 2, 8));
    }

    #[test]
    fn mistakes_are_one_sentence() {
        let why = |files: &[(&str, &str)]| read(files).unwrap_err().to_string();
        for (said, files) in [
            ("in a circle", &[("a.toml", "extends = \"a.toml\"\n")][..]),
            ("cannot read", &[("a.toml", "extends = \"none.toml\"\n")]),
            ("not the name of a file", &[("a.toml", "extends = 3\n")]),
            (
                "is a table in what this scenario extends",
                &[("a.toml", "extends = \"b.toml\"\nhost = 3\n"), ("b.toml", BELOW)],
            ),
            (
                "cpus = 99 is out of range",
                &[("a.toml", "extends = \"b.toml\"\nhost.cpus = 99\n"), ("b.toml", BELOW)],
            ),
        ] {
            let why = why(files);
            assert!(why.contains(said) && why.contains("a.toml") && !why.contains('\n'), "{why}");
        }
    }
}
