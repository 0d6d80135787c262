// SPDX-License-Identifier: GPL-2.0-only
//! Loads of Linux guests that come with the lab: `load = "futex"` in `[linux]`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

/// All of them, by name.
const TEXT: &str = include_str!("loads.toml");

/// What guests run. The fields are those of `[linux]` ([`super::LinuxSpec`]).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// For headings.
    pub title: String,
    /// What it does, and what it stands for.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    pub about: String,
    /// Memory of a guest in MiB, if it needs more than most.
    pub memory_mb: Option<u32>,
    /// Debian packages.
    pub packages: Vec<String>,
    /// Run once.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Run again and again.
    pub command: Vec<String>,
    /// What stands before the rate that it prints.
    pub figure: Option<String>,
    /// Files that are wanted besides.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

/// All loads, by name.
///
/// # Panics
/// If `loads.toml` is wrong, which a test would show.
pub fn all() -> &'static BTreeMap<String, Load> {
    static ALL: LazyLock<BTreeMap<String, Load>> =
        LazyLock::new(|| toml::from_str(TEXT).expect("loads.toml is sound"));
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use std::path::Path;

    fn parse(linux: &str) -> Result<Scenario, String> {
        let text = format!("title = \"t\"\n[host]\ncpus = 4\n[linux]\ncpus = 2\n{linux}\n");
        Scenario::parse(&text, Path::new("x")).map_err(|e| e.to_string())
    }

    #[test]
    fn all_loads_are_sound_and_documented() {
        let docs = include_str!("../../../../docs/scenarios.md");
        for (name, load) in all() {
            let scenario = parse(&format!("load = \"{name}\"")).unwrap();
            let linux = scenario.linux.as_ref().unwrap();
            assert_eq!((&linux.command, &linux.packages), (&load.command, &load.packages));
            assert_eq!(scenario.heading(), format!("t: {}", load.title));
            assert!(docs.contains(&format!("| `{name}` |")) && docs.contains(load.about.trim()), "{name}");
        }
    }

    #[test]
    fn what_a_scenario_says_goes_before_its_load() {
        let scenario = parse("load = \"make\"\nguests = 3\nmemory_mb = 600\ncommand = [\"x\"]").unwrap();
        let linux = scenario.linux.as_ref().unwrap();
        assert_eq!((linux.memory_mb(), linux.command.as_slice()), (600, &["x".to_string()][..]));
        assert!(linux.packages.contains(&"make".into()));
        assert_eq!(scenario.host.memory_mb(), 3 * 600 + 1536);
    }

    #[test]
    fn an_unknown_load_is_named_with_its_line() {
        let why = parse("load = \"tetris\"").unwrap_err();
        assert!(
            why.starts_with("x:6: there is no load \"tetris\"; there are ") && why.contains("futex"),
            "{why}"
        );
    }
}
