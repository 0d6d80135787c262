// SPDX-License-Identifier: GPL-2.0-only
//! What docs, code, scenarios and patches point at is there: sources by their keys (docs/references.md), headings and
//! files by links, and the messages that docs/troubleshooting.md quotes in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below these folders that end so, with their texts.
fn texts(folders: &[&str], endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

fn pages() -> Vec<(PathBuf, String)> {
    texts(&["docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"], &[".md"])
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// Keys that docs/references.md defines, by their anchors.
fn keys() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("docs/references.md")).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|key| (anchor(key), key.to_string()))
        .collect()
}

/// Whether what stands in brackets in code or prose is meant for a key.
fn is_key(word: &str) -> bool {
    if let Some(commit) = word.strip_prefix("commit ") {
        return commit.chars().all(|c| c.is_ascii_hexdigit());
    }
    word.len() > 5
        && word.contains('-')
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Anchors of the keys that are cited, and where first.
fn cited() -> BTreeMap<String, PathBuf> {
    let mut cited = BTreeMap::new();
    let mut code = texts(&["policy", "kernel", "crates"], &[".h", ".c", ".rs", ".patch"]);
    code.extend(texts(&["scenarios"], &[".toml"]));
    for (file, text) in code.into_iter().filter(|(file, _)| !file.ends_with("tests/references.rs")) {
        for word in text.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(word, _)| word) {
            if is_key(word) {
                cited.entry(anchor(word)).or_insert(file.clone());
            }
        }
    }
    for (file, text) in pages().into_iter().filter(|(file, _)| !file.ends_with("references.md")) {
        for key in text.split("references.md#").skip(1).filter_map(|rest| rest.split(')').next()) {
            cited.entry(key.to_string()).or_insert(file.clone());
        }
    }
    cited
}

#[test]
fn sources_that_are_cited_are_defined() {
    let keys = keys();
    for (key, file) in cited() {
        assert!(
            keys.contains_key(&key),
            "{} cites [{key}], which docs/references.md does not define",
            file.display()
        );
    }
}

#[test]
fn sources_that_are_defined_are_cited() {
    let (keys, cited) = (keys(), cited());
    assert!(keys.len() > 5, "{keys:?}");
    for (anchor, key) in keys {
        assert!(cited.contains_key(&anchor), "nobody cites [{key}] of docs/references.md");
    }
}

/// Files that are linked to are there, and have the heading.
#[test]
fn links_lead_to_files_and_headings() {
    let mut links = 0;
    for (file, text) in pages() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") || target.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            let (name, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if name.is_empty() { file.clone() } else { file.parent().unwrap().join(name) };
            assert!(path.exists(), "{} links to {target}, which is not there", file.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&path).unwrap();
                let titles = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors = titles.map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(
                    anchors.any(|a| a == heading),
                    "{} links to {target}: no such heading",
                    file.display()
                );
            }
        }
    }
    assert!(links > 100, "only {links} links");
}

/// The text of programs as users see it: without the quotes' backslashes and the breaks of long lines.
fn as_shown(code: &str) -> String {
    let mut shown = String::new();
    for part in code.split("\\\n") {
        shown.push_str(if shown.is_empty() { part } else { part.trim_start() });
    }
    shown.replace("\\\"", "\"")
}

/// Quoted, and said by systemd.
const OTHERS: [&str; 3] =
    ["Start request repeated too quickly", "Failed to load BPF program: No such process", "CrashLoopBackOff"];

/// What docs/troubleshooting.md quotes is said by a program: in pieces, between which it may say anything.
#[test]
fn messages_that_are_quoted_exist() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let code: Vec<String> = texts(&["crates", "packaging"], &[".rs", ".c", ".h", ".yml"])
        .iter()
        .map(|(_, text)| as_shown(text))
        .collect();
    let mut quoted = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let first = row.split(" | ").next().unwrap();
        for message in first.split('`').skip(1).step_by(2).filter(|message| !OTHERS.contains(message)) {
            quoted += 1;
            let pieces = message.split(|c: char| "…\"".contains(c) || c.is_ascii_digit());
            let pieces = pieces.map(|piece| piece.trim_matches(|c: char| " :".contains(c)));
            for piece in pieces.filter(|piece| piece.len() > 3) {
                assert!(
                    code.iter().any(|text| text.contains(piece)),
                    "docs/troubleshooting.md quotes {message:?}: nothing says {piece:?}"
                );
            }
        }
    }
    assert!(quoted > 20, "only {quoted} messages");
}

/// A term has one line in the glossary, and the terms of a table are in order.
#[test]
fn terms_of_the_glossary_are_in_order_and_once() {
    let page = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let mut seen = BTreeSet::new();
    for section in page.split("\n## ") {
        let rows = section.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
        let terms: Vec<String> = rows.map(str::to_lowercase).collect();
        assert!(terms.is_sorted(), "docs/glossary.md is out of order: {terms:?}");
        for term in terms {
            assert!(seen.insert(term.clone()), "docs/glossary.md has {term:?} twice");
        }
    }
    assert!(seen.len() > 40, "only {} terms", seen.len());
}

/// What is released next is what the changelog begins with.
#[test]
fn the_changelog_begins_with_this_version() {
    let text = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (cargo, changes) = (text("Cargo.toml"), text("CHANGELOG.md"));
    let version =
        cargo.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap();
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(newest, version, "CHANGELOG.md and Cargo.toml");
}

/// docs/where.md names files that are there, and what is in them.
#[test]
fn rules_are_where_the_table_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/where.md")).unwrap();
    let mut rules = 0;
    for row in text.lines().filter(|line| line.contains("| `")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let (file, functions) = words.split_at(row.split(" | ").next().unwrap().matches('`').count() / 2 + 1);
        let file = file.last().unwrap();
        let below = [root.join(file), root.join("crates/scheduler/src/bpf").join(file)];
        let text = below.iter().find_map(|path| std::fs::read_to_string(path).ok());
        let text = text.unwrap_or_else(|| panic!("{file} is not there"));
        for function in functions {
            // Programs are named in a macro.
            let is_there =
                ["{}(", "fn {}<", "({},"].iter().any(|how| text.contains(&how.replace("{}", function)));
            assert!(is_there, "{function}() is not in {file}");
            rules += 1;
        }
    }
    assert!(rules > 300, "{rules}");
}
