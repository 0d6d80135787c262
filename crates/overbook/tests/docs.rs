// SPDX-License-Identifier: GPL-2.0-only
//! Every command in a shell block of the docs exists with these options; and it is executed here, or by another test
//! that is named, or marked `# hardware`: it needs root and a kernel with sched_ext or KVM (the lab runs the like).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Commands that other tests run, and which.
const ELSEWHERE: [(&str, &str); 14] = [
    ("make lab", "ring 2 runs its scenarios' like"),
    ("make test", ".ci/run"),
    ("make deb", "tests/lab/deb.rs"),
    ("make kernel", "by hand, as it builds for a quarter of an hour"),
    ("overbook lab guest", "tests/lab/main.rs"),
    ("overbook lab soak", "tests/lab/main.rs"),
    ("overbook lab run", "tests/lab/main.rs"),
    ("overbook lab kernels", "make ring2"),
    ("overbook lab emulator", "make ring2"),
    ("overbook lab rivals", "tests/walk.rs, and by hand, as it builds for a quarter of an hour"),
    ("overbook lab observe", "by hand: it made tests/data/recording.jsonl"),
    ("overbook generate", "tests/lab/deb.rs"),
    ("overbook tunnel run", "crates/tunnel/tests/scenarios.rs, and tests/cli.rs"),
    ("overbook tunnel agree", "by hand, as it needs results of the lab: its table is in tunnel.md"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lines of the `sh` blocks of all docs, with their file.
fn commands() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = docs.chain([root().join("README.md")]).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "md"));
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut inside = false;
        for line in text.lines() {
            match line {
                "```sh" => inside = true,
                "```" => inside = false,
                line if inside && !line.trim().is_empty() => {
                    found.push((file.file_name().unwrap().to_string_lossy().into_owned(), line.to_string()));
                }
                _ => {}
            }
        }
    }
    found
}

fn overbook(words: &[&str], dir: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_overbook")).args(words).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn commands_of_the_docs_are_tried() {
    let dir = TempDir::new().unwrap();
    let trace = "[{\"cpus\":\"0\",\"node\":0,\"keep\":true},{\"cpus\":\"1\",\"node\":0,\"keep\":false}]\n\
                 {\"elapsed_ns\":1000000000,\"run_ns\":1000000000,\"steal_ns\":1000000000}\n";
    fs::write(dir.path().join("trace.jsonl"), trace).unwrap();
    let all = commands();
    assert!(all.len() > 15, "{all:?}");
    for (file, line) in all {
        let (command, comment) = line.split_once('#').unwrap_or((&line, ""));
        let command = command.trim().trim_start_matches("sudo ").trim_start_matches("target/release/");
        // What a shell takes off.
        let words: Vec<&str> =
            command.split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect();
        if command.starts_with("overbook ") {
            let (fine, text) = overbook(&[&words[..], &["--help"]].concat(), dir.path());
            assert!(fine, "{file}: {line}\n{text}");
        }
        if comment.trim_start().starts_with("hardware")
            || ELSEWHERE.iter().any(|(known, _)| command.starts_with(known))
        {
            continue;
        }
        assert!(command.starts_with("overbook "), "{file}: nobody tries {line:?}");
        let (fine, text) = overbook(&words, dir.path());
        // What `check` finds is this machine's business.
        assert!(fine || words[0] == "check", "{file}: {line}\n{text}");
    }
}

#[test]
fn links_of_the_docs_lead_somewhere() {
    let folders =
        ["docs", "docs/results", "docs/decisions"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().flatten().map(|e| e.path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "md"));
    for entry in files.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&entry).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.starts_with("http") {
                continue;
            }
            let path = entry.parent().unwrap().join(file);
            assert!(path.exists(), "{} links to {target}, which is not there", entry.display());
        }
    }
}

/// What the rules, and the README, say was measured: each figure in a sentence that cites the results of the host is there.
#[test]
fn figures_of_the_docs_are_those_of_the_results() {
    const PAGE: &str = "results/host.md#";
    let text = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let rules = text("docs/policies.md") + &text("README.md").replace("](docs/", "](");
    let results = text("docs/results/host.md");
    let is_figure = |word: &&str| word.contains('.') && word.parse::<f64>().is_ok();
    let mut figures = 0;
    let sentences = rules.lines().flat_map(|line| line.split(". "));
    for sentence in sentences.filter(|sentence| sentence.contains(PAGE)) {
        for figure in sentence.split(|c: char| c.is_whitespace() || ",:;()".contains(c)).filter(is_figure) {
            figures += 1;
            let there = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()) == figure;
            assert!(results.split_whitespace().any(there), "{figure} is not in {PAGE}: {sentence}");
        }
    }
    assert!(figures > 2, "only {figures} figures");
    for anchor in rules.split(PAGE).skip(1).filter_map(|rest| rest.split(')').next()) {
        let heading = |line: &str| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            line.starts_with('#')
                && words.chars().filter(|c| c.is_alphanumeric() || *c == '-').eq(anchor.chars())
        };
        assert!(results.lines().any(heading), "{PAGE}{anchor} is no heading");
    }
}

/// Two numbers for one thing make both doubtful.
#[test]
fn the_docs_agree_on_the_disk_that_it_takes() {
    let text = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let disk = |text: &str| text.split(" GB of disk").next().unwrap().rsplit(' ').next().unwrap().to_string();
    let (readme, install) = (text("README.md"), text("docs/install.md"));
    assert!(readme.contains(" GB of disk") && install.contains(" GB of disk"));
    assert_eq!(disk(&readme), disk(&install), "README.md and docs/install.md");
}

/// Tables are what `overbook lab tables` makes of the results that are checked in.
#[test]
fn tables_are_what_their_results_say() {
    let pages = fs::read_dir(root().join("docs/results")).unwrap().flatten().map(|entry| entry.path());
    let pages: Vec<String> = pages
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .chain([root().join("README.md")])
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> =
        ["lab", "tables", "--check"].into_iter().chain(pages.iter().map(String::as_str)).collect();
    let (fine, said) = overbook(&words, &root());
    assert!(fine && pages.len() > 3, "{said}");
    assert!(!said.contains("guest.md: 0 tables"), "{said}");
}

/// What is said of why locks win is of the file that is checked in with it.
#[test]
fn counters_of_the_locks_are_those_of_their_file() {
    let file = root().join("docs/results/make-lab/lock-2to1+layout.cgroups=per-vcpu.json");
    let locks = overbook_report::json::read(&file).unwrap();
    let page = fs::read_to_string(root().join("docs/results/host.md")).unwrap();
    let counter = |what: &str| {
        let name = format!("overbook: VMs {what}");
        let value = overbook_report::summary::host_counter(&locks, "overbook", &name);
        overbook_report::format::counter(&name, value)
    };
    let [asked, delivered, spared, gave_up] = ["asked", "delivered", "spared", "gave up"].map(counter);
    for sentence in [
        format!("KVM asked for {asked} yields"),
        format!("Overbook delivered {delivered} to"),
        format!("left {spared} spinners alone"),
        format!("{gave_up} times the spinner just gave up"),
    ] {
        assert!(page.contains(&sentence), "host.md lacks {sentence:?}");
    }
}
