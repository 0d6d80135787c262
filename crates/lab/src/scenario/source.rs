// SPDX-License-Identifier: GPL-2.0-only
//! Where a scenario comes from: its file, and what an order changes in it.

use super::check::Key;
use super::{Scenario, check::offset_of};
use anyhow::{Context, Result, bail};
use overbook_report::schema::VARIANTS_OF;
use std::path::Path;
use std::str::FromStr;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// Bytes of a file's name, without what is added to it for a while (`.json`, `.part`).
const LONGEST_NAME: usize = 240;

/// A scenario file and what an order changes in it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The scenario file.
    pub file: &'a Path,
    /// Another scenario, whose variants replace the file's.
    pub variants_of: Option<&'a Path>,
    /// What replaces values of the file.
    pub settings: &'a [Setting],
}

impl Source<'_> {
    /// Name of a report: the file's, that of the file whose variants it takes, and the settings.
    pub fn name(&self) -> String {
        let stem = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let others = self.variants_of.map(|file| format!("+{}", stem(file)));
        let settings = self.settings.iter().map(|setting| format!("+{}", setting.name()));
        stem(self.file) + &others.unwrap_or_default() + &settings.collect::<String>()
    }

    /// Reads and checks the scenario; gives also its text, as it is with all changes.
    ///
    /// # Errors
    /// See [`Scenario::read`]; or a setting names no table of the file; or the variants are for a machine of another
    /// kind; or only the wind tunnel can run it.
    pub fn read(&self) -> Result<(Scenario, String)> {
        let name = self.name();
        if name.len() > LONGEST_NAME {
            bail!(
                "the result would have a name of {} bytes, and files may have {LONGEST_NAME}: write the changes into a \
                 copy of {}",
                name.len(),
                self.file.display()
            );
        }
        let (mut scenario, mut text) = Scenario::read(self.file)?;
        let file = self.file.display();
        if scenario.tunnel.is_some() {
            let line = text[..offset_of(&text, &[Key::Name("tunnel")])].matches('\n').count() + 1;
            bail!(
                "{file}:{line}: [tunnel] makes this a scenario of the wind tunnel: overbook tunnel run {file}"
            );
        }
        if !self.settings.is_empty() {
            let mut document: DocumentMut = text.parse().with_context(|| format!("{file}"))?;
            for setting in self.settings {
                setting.apply(&mut document).with_context(|| format!("{file}"))?;
            }
            text = document.to_string();
            let all: Vec<_> = self.settings.iter().map(|setting| setting.text.as_str()).collect();
            let path = format!("{file} with {}", all.join(", "));
            scenario = Scenario::parse(&text, Path::new(&path))?;
        }
        if let Some(other) = self.variants_of {
            let (its, its_text) = Scenario::read(other)?;
            scenario.variants = its.variants;
            let misfit = || format!("the variants of {} do not fit {file}", other.display());
            scenario.validate().with_context(misfit)?;
            // Reports are handed on: they need not tell where files are on this computer.
            let name = other.file_name().unwrap_or_default().display();
            text += &format!("\n{VARIANTS_OF}{name}:\n\n{its_text}");
        }
        Ok((scenario, text))
    }
}

/// `TABLE.KEY=VALUE`: a value that replaces one of a scenario; of `[[vm]]` and the like, in all of them.
#[derive(Clone, Debug)]
pub struct Setting {
    text: String,
    keys: Vec<String>,
    value: Value,
}

impl FromStr for Setting {
    type Err = String;

    /// A value that is no TOML is taken as a word: `layout.cgroups=flat`.
    fn from_str(text: &str) -> Result<Setting, String> {
        let (path, value) = text.split_once('=').unwrap_or_default();
        let keys: Vec<String> = path.split('.').map(str::to_string).collect();
        let word = |key: &String| !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if !keys.iter().all(word) || value.is_empty() {
            return Err("say TABLE.KEY=VALUE, such as linux.guests=3".into());
        }
        let value = value.parse().unwrap_or_else(|_| Value::from(value));
        Ok(Setting { text: text.into(), keys, value })
    }
}

/// Tables that every scenario has, whether it says something of them or not.
const OPTIONAL: [&str; 3] = ["host", "measure", "layout"];

impl Setting {
    /// As a part of a file's name.
    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "=._-".contains(c) { c } else { '_' };
        self.text.chars().map(plain).collect()
    }

    fn apply(&self, document: &mut DocumentMut) -> Result<()> {
        let table = self.keys.first().filter(|key| OPTIONAL.contains(&key.as_str()));
        if let (Some(table), true) = (table, self.keys.len() > 1) {
            document.entry(table).or_insert(Item::Table(Table::new()));
        }
        replace(document.as_table_mut(), &self.keys, &self.value)
            .with_context(|| format!("there is no table for {}", self.text))
    }
}

/// Nothing if the path leads nowhere.
fn replace(table: &mut dyn TableLike, keys: &[String], value: &Value) -> Option<()> {
    let [key, rest @ ..] = keys else { return None };
    if rest.is_empty() {
        table.insert(key, Item::Value(value.clone()));
        return Some(());
    }
    match table.get_mut(key)? {
        Item::ArrayOfTables(tables) => tables.iter_mut().try_for_each(|table| replace(table, rest, value)),
        item => replace(item.as_table_like_mut()?, rest, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TEXT: &str = "title = \"t\"\n[host]\ncpus = 4\n[[vm]]\nvcpus = 4\npattern = \"lock\"\n[[vm]]\nvcpus = 2\npattern = \"ipi\"\n";

    fn read(settings: &[&str]) -> Result<(Scenario, String, String)> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("few.toml");
        fs::write(&file, TEXT)?;
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        let source = Source { file: &file, variants_of: None, settings: &settings };
        let (scenario, text) = source.read()?;
        Ok((scenario, text, source.name()))
    }

    #[test]
    fn settings_replace_values() {
        let settings = ["vm.count=3", "host.cpus=8", "title=\"a b\"", "measure.seconds=8"];
        let (scenario, text, name) = read(&settings).unwrap();
        assert_eq!((scenario.host.cpus, scenario.title.as_str()), (8, "a b"));
        assert!(scenario.vms.iter().all(|vm| vm.count == 3));
        assert_eq!(Scenario::parse(&text, Path::new("x")).unwrap().host.cpus, 8);
        assert_eq!(scenario.measure.seconds, 8.0, "a table that the file does not have");
        assert_eq!(name, "few+vm.count=3+host.cpus=8+title=_a_b_+measure.seconds=8");
    }

    #[test]
    fn a_result_has_a_name_that_files_can_have() {
        let long = format!("title=\"{}\"", "x".repeat(300));
        let why = format!("{:#}", read(&[&long]).unwrap_err());
        assert!(why.starts_with("the result would have a name of 312 bytes"), "{why}");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let why = |setting: &str| format!("{:#}", read(&[setting]).unwrap_err());
        assert!(why("linux.guests=3").contains("there is no table for linux.guests=3"));
        assert!(why("host.cpus=99").contains("with host.cpus=99:3: cpus = 99 is out of range"));
        assert!(why("host.cups=9").contains("unknown field `cups`"));
        for nonsense in ["", "host", "=3", "host.cpus=", "Host.cpus=3", "host..cpus=3"] {
            assert!(
                nonsense.parse::<Setting>().unwrap_err().contains("such as linux.guests=3"),
                "{nonsense}"
            );
        }
    }
}
