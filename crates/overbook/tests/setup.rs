// SPDX-License-Identifier: GPL-2.0-only
//! Whatever the Makefile, the scripts and the tests call is installed by tools/setup, or is there on every Debian.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Of Debian's essential packages, and of those that every installation has (apt, mawk, mount).
const ESSENTIAL: &str = "apt-cache apt-config apt-get awk bash cat chmod chroot comm cp cut date df dirname dpkg dpkg-query du env find flock getconf \
    grep gzip head id install ln ls mkdir mknod mktemp mount mv nproc perl realpath rm sed seq setpriv setsid sh sleep sort stat tail tar \
    tee timeout touch tr true umount uname unshare wc xargs";

/// What a shell knows itself.
const BUILTIN: &str = "break case cd command continue declare do done elif else esac eval exec exit export false fi for \
    hash if in kill local mapfile printf pwd read return set shift test then time trap umask unset until wait while echo";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// Programs that packages of tools/setup bring, as the table there says.
fn installed() -> BTreeSet<String> {
    let setup = read("tools/setup");
    let rows = setup.lines().filter_map(|line| {
        let row = line.trim().trim_start_matches("RUST=(").trim_end_matches(')');
        row.starts_with('"').then_some(row)
    });
    rows.flat_map(|row| row.split('"'))
        .filter_map(|row| row.split_once(':'))
        .flat_map(|(_, programs)| programs.split_whitespace().map(str::to_string))
        .collect()
}

/// Files below a folder whose name ends so.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path(), end)),
            false if entry.file_name().to_string_lossy().ends_with(end) => found.push(entry.path()),
            false => {}
        }
    }
    found
}

/// What Rust code calls, each with the statement that does: names that are written out, or constants of the same crate.
fn called_by_rust() -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for krate in fs::read_dir(repository().join("crates")).unwrap().flatten() {
        let texts: Vec<String> =
            files(&krate.path(), ".rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let constant = |name: &str| {
            let definition = format!("const {name}: &str = \"");
            texts.iter().find_map(|t| Some(t.split_once(&definition)?.1.split('"').next()?.to_string()))
        };
        let call = "Command::new(";
        for text in texts.iter().flat_map(|text| text.split(call).skip(1)) {
            let argument = text.split(')').next().unwrap_or_default();
            let name = match argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
                Some(name) => Some(name.to_string()),
                None => constant(argument),
            };
            let statement = text.split(';').next().unwrap_or_default();
            let of_ours = |name: &String| name.starts_with("/proc/") || name.starts_with("/nonexistent");
            calls.extend(name.filter(|n| !of_ours(n)).map(|name| (name, format!("{call}{statement}"))));
        }
    }
    assert!(calls.len() > 10, "{calls:?}");
    calls
}

/// A script without comments and quoted text, and with every substitution on a line of its own.
fn bare(script: &str) -> String {
    let mut bare = String::new();
    // Whether the text is in double quotes, for every substitution that is open.
    let mut quoted = vec![false];
    let mut characters = script.chars().peekable();
    while let Some(c) = characters.next() {
        let inside = *quoted.last().unwrap();
        match c {
            '\\' => {
                if characters.next() != Some('\n') {
                    bare.push('_');
                }
            }
            '"' => {
                *quoted.last_mut().unwrap() = !inside;
                bare.push('_');
            }
            '$' if characters.peek() == Some(&'(') => {
                characters.next();
                quoted.push(false);
                bare.push_str("_\n");
            }
            ')' if !inside && quoted.len() > 1 => {
                quoted.pop();
                bare.push_str("\n_ ");
            }
            _ if inside => {}
            '\'' => {
                bare.push('_');
                let _ = characters.by_ref().find(|c| *c == '\'');
            }
            '#' if bare.is_empty() || bare.ends_with(char::is_whitespace) => {
                let _ = characters.by_ref().find(|c| *c == '\n');
                bare.push('\n');
            }
            _ => bare.push(c),
        }
    }
    bare
}

/// A script without what it writes to files as it stands there (`<<END`).
fn without_documents(script: &str) -> String {
    let mut end: Option<&str> = None;
    let mut kept = String::new();
    for line in script.lines() {
        match end {
            Some(word) if line.trim() == word => end = None,
            Some(_) => {}
            None => {
                end = line.split_once("<<").map(|(_, word)| word.trim_start_matches('-').trim_matches('\''));
                kept += line;
                kept.push('\n');
            }
        }
    }
    kept
}

/// Words in the place of a command.
fn called_by_shell(script: &str) -> BTreeSet<String> {
    let script = bare(script);
    let functions: BTreeSet<&str> =
        script.lines().filter_map(|line| Some(line.split_once("() {")?.0.trim())).collect();
    let mut called = BTreeSet::new();
    for part in script.split(['\n', ';', '|', '&', '{', '(']) {
        let mut words = part.split_whitespace().skip_while(|word| {
            ["!", "if", "then", "do", "else", "elif", "while", "until", "exec", "command"].contains(word)
                || word.contains('=')
                || word.ends_with(')')
        });
        let word = words.next().unwrap_or_default();
        let name = word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+.".contains(c));
        if name && !functions.contains(word) && !BUILTIN.split_whitespace().any(|b| b == word) {
            called.insert(word.to_string());
        }
    }
    called
}

#[test]
fn commands_are_found_in_scripts() {
    let script = "#!/bin/sh\n# not this\nmine() {\n\tX=1 first \"a $(second -x 'no|t') b; not\" | third; }\nif ! fourth; then\n\tmine; fi\ncase $x in\na) fifth \\\n\tword ;;\nesac\necho $(( 1 ))\n";
    let wanted = ["fifth", "first", "fourth", "second", "third"].map(str::to_string);
    assert_eq!(called_by_shell(script), BTreeSet::from(wanted));
}

#[test]
fn whatever_is_called_is_installed() {
    let installed = installed();
    let known = |name: &str| installed.contains(name) || ESSENTIAL.split_whitespace().any(|e| e == name);
    let mut called: BTreeSet<String> = called_by_rust().into_iter().map(|(name, _)| name).collect();
    let mut scripts = 0;
    for file in [".ci", "tools", "packaging"].iter().flat_map(|dir| files(&repository().join(dir), "")) {
        // What is for sh runs where the package is installed.
        let mut text = fs::read_to_string(file).unwrap_or_default();
        if text.starts_with("#!/usr/bin/env bash") {
            scripts += 1;
            // Its functions are the script's, and what it calls the script calls.
            if text.contains("machine.sh") {
                text = read("packaging/machine.sh") + &text;
            }
            called.extend(called_by_shell(&without_documents(&text)));
        }
    }
    assert!(scripts >= 6, "scripts are not found any more");
    let recipes = read("Makefile");
    let recipes: Vec<&str> =
        recipes.lines().filter_map(|l| Some(l.strip_prefix('\t')?.trim_start_matches('@'))).collect();
    called.extend(called_by_shell(&recipes.join("\n")));
    for program in ["clang-format-19", "cargo", "ps", "systemd-analyze", "mmdebstrap", "cpio"] {
        assert!(called.contains(program), "{program} is not found any more: {called:?}");
    }
    let missing: Vec<&String> = called.iter().filter(|name| !known(name)).collect();
    assert!(
        missing.is_empty(),
        "tools/setup brings none of {missing:?}: name its package and it in the table there"
    );
}

#[test]
fn a_program_that_is_missing_is_named() {
    for (name, statement) in called_by_rust() {
        let bare = statement.split_whitespace().collect::<String>();
        for call in ["output()", "status()", "spawn()"] {
            assert!(!bare.contains(&format!("{call}.unwrap()")), "{name} may be missing: {statement}");
        }
    }
}

/// Runs tools/setup on a system that exists only here: what dpkg-query says of packages, and what cargo does, as shell.
/// Gives what it said, and what it would have installed.
fn set_up(argument: &str, dpkg_query: &str, cargo: &str) -> (String, String) {
    let dir = TempDir::new().unwrap();
    let asked = dir.path().join("asked");
    fs::write(&asked, "").unwrap();
    for (name, body) in [
        ("dpkg-query", dpkg_query.to_string()),
        ("cargo", cargo.to_string()),
        ("id", "echo 0".to_string()),
        ("dpkg", "[ \"$1\" = --configure ] || exec /usr/bin/dpkg \"$@\"".to_string()),
        ("apt-get", format!("echo \"$@\" >>{}", asked.display())),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(repository().join("tools/setup"));
    command.arg(argument).env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8(said).unwrap(), fs::read_to_string(asked).unwrap())
}

/// All packages are installed but those that match.
fn all_but(missing: &str, owner: &str) -> String {
    format!(
        "if [ $1 = -S ]; then echo '{owner}'; else shift 3; for p; do case $p in {missing}) ;; *) echo \"ii $p\" ;; esac; done; fi"
    )
}

#[test]
fn debians_toolchain_gets_its_linters_and_another_is_told_to() {
    let debian = all_but("rust-web-clippy | procps", "cargo-web: /usr/bin/cargo");
    let (said, asked) = set_up("", &debian, "echo cargo 1.96.0");
    assert!(said.contains("setup: installing procps rust-web-clippy"), "{said}");
    assert!(asked.contains("install -y --no-install-recommends procps rust-web-clippy"), "{asked}");

    let rustup = all_but("rust-web-* | cargo-web | rustc-web", "");
    let bare = "case $1 in --version) echo cargo 1.96.0 ;; fmt) ;; *) exit 1 ;; esac";
    assert_eq!(set_up("", &rustup, bare), (String::new(), String::new()), "a build needs no linters");
    let (said, asked) = set_up("lint", &rustup, bare);
    assert!(said.contains("has no cargo clippy: with rustup, rustup component add"), "{said}");
    assert_eq!(asked, "");

    let (_, asked) = set_up("", &all_but("*-web", ""), "exit 1");
    assert!(asked.contains("cargo-web rustc-web rustfmt-web"), "there is no toolchain: {asked}");
}

/// A filter that no name matches runs no test, and ends well.
#[test]
fn tests_that_the_small_proof_names_exist() {
    let script = read("tools/fresh-root");
    let names = script.split("QUICK_TESTS=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let tests = files(&repository().join("crates/overbook/tests/lab"), ".rs");
    let all: String = tests.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    for name in names.split_whitespace() {
        assert!(all.contains(&format!("fn {name}")), "tools/fresh-root names no test with {name}");
    }
}
