// SPDX-License-Identifier: GPL-2.0-only
//! The package installs, is complete, follows an older one, and leaves nothing behind when purged; into a folder, as root, and
//! under systemd.

use super::text;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("dpkg")
        .arg(format!("--root={}", root.display()))
        .args(["--force-script-chrootless", "--force-depends"])
        .args(arguments)
        .output()
        .expect("dpkg runs: this is tried on Debian only");
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// Files below a folder but dpkg's own.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path().strip_prefix(root).unwrap().to_path_buf()),
            }
        }
    }
    found.retain(|file| !file.starts_with("var/lib/dpkg") && !file.starts_with("var/log"));
    found.sort();
    found
}

/// Makes the package in a folder.
fn build(out: &Path) -> PathBuf {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(repo.join("packaging/deb/build"))
        .args([Path::new(env!("CARGO_BIN_EXE_overbook")), out])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
    text(&output)
}

/// A package of a year ago, made of another, whose settings were others too.
fn older_than(package: &Path, out: &Path) -> PathBuf {
    let (tree, older) = (out.join("tree"), out.join("older.deb"));
    run("dpkg-deb", &["-R", package.to_str().unwrap(), tree.to_str().unwrap()]);
    let edit = |file: &str, change: &dyn Fn(&str) -> String| {
        let file = tree.join(file);
        fs::write(&file, change(&fs::read_to_string(&file).unwrap())).unwrap();
    };
    edit("DEBIAN/control", &|text| {
        let version = text.lines().find(|line| line.starts_with("Version: ")).unwrap();
        text.replace(version, "Version: 0.1.0+git20251122.130835.9.0123456789")
    });
    for settings in ["etc/default/overbook-host", "etc/default/overbook-guest"] {
        edit(settings, &|text| format!("{text}# What an older package said.\n"));
    }
    run("dpkg-deb", &["--root-owner-group", "-b", "-Zgzip", tree.to_str().unwrap(), older.to_str().unwrap()]);
    older
}

/// Installed, started, upgraded, killed, replaced, removed and purged, under a systemd that runs.
#[test]
fn the_package_works_under_systemd() {
    let out = TempDir::new().unwrap();
    let package = build(&out.path().join("newer"));
    let older = older_than(&package, out.path());
    let cache = overbook_kernels::Cache::open_default().unwrap();
    let want = overbook_kernels::Want { series: Some("6.18".into()), ..Default::default() };
    let kernel = overbook_kernels::resolve(&want, &cache, &mut |_| {}).expect("a kernel is to be had");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb/try");
    let tried = Command::new(script)
        .args([&older, &package, &kernel.image, kernel.config.as_ref().unwrap()])
        .output()
        .unwrap();
    assert!(tried.status.success() && text(&tried).contains("walk: all is well"), "{}", text(&tried));
}

/// A folder that dpkg takes for a system without packages.
fn empty_root() -> TempDir {
    let root = TempDir::new().unwrap();
    for folder in ["updates", "info", "triggers"] {
        fs::create_dir_all(root.path().join("var/lib/dpkg").join(folder)).unwrap();
    }
    fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
    fs::write(root.path().join("var/lib/dpkg/available"), "").unwrap();
    root
}

#[test]
fn the_package_installs_and_goes_without_a_trace() {
    let (out, root) = (TempDir::new().unwrap(), empty_root());
    let package = build(out.path());
    dpkg(root.path(), &["--install", package.to_str().unwrap()]);
    let installed = files(root.path());
    for file in [
        "usr/bin/overbook",
        "lib/systemd/system/overbook-host.service",
        "lib/systemd/system/overbook-guest.service",
        "lib/systemd/system/overbook-metrics.service",
        "etc/default/overbook-host",
        "etc/overbook.toml",
        "usr/share/man/man1/overbook-host.1.gz",
        "usr/share/man/man1/overbook-lab-run.1.gz",
        "usr/share/bash-completion/completions/overbook",
        "usr/share/doc/overbook/README.md",
        "usr/share/doc/overbook/docs/host.md",
        "usr/share/doc/overbook/changelog.gz",
        "usr/share/overbook/scenarios/headline/lock-2to1.toml",
        "usr/share/overbook/prometheus/overbook.rules.yml",
        "usr/share/overbook/prometheus/kustomization.yaml",
        "usr/share/overbook/grafana/kustomization.yaml",
        "usr/share/overbook/kubernetes/schedule/kustomization.yaml",
        "usr/share/overbook/libvirt/qemu",
    ] {
        assert!(installed.iter().any(|f| f == Path::new(file)), "{file} is missing: {installed:?}");
    }
    let program = root.path().join("usr/bin/overbook");
    let said = run(program.to_str().unwrap(), &["--version"]);
    let version = run("dpkg-deb", &["--field", package.to_str().unwrap(), "Version"]);
    assert_eq!(said, format!("overbook {version}"));
    // Nobody is answered who was not meant to ask.
    for service in ["host", "guest", "metrics"] {
        let settings =
            fs::read_to_string(root.path().join(format!("etc/default/overbook-{service}"))).unwrap();
        assert!(settings.lines().any(|line| line == "OPTIONS=\"\""), "{settings}");
    }
    // The defaults that are installed are read, and ask for nothing unknown.
    let checked = Command::new(&program)
        .env("OVERBOOK_CONFIG", root.path().join("etc/overbook.toml"))
        .args(["host", "--slice-us", "0"])
        .output()
        .unwrap();
    assert!(text(&checked).contains("a number from 100 to 100000 belongs here"), "{}", text(&checked));

    let units: Vec<PathBuf> =
        installed.iter().filter(|f| f.extension().is_some_and(|e| e == "service")).cloned().collect();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(format!("--root={}", root.path().display()))
        .args(units.iter().map(|unit| Path::new("/").join(unit)))
        .output()
        .expect("systemd-analyze runs: `make setup` installs it");
    assert!(verified.status.success(), "{}", text(&verified));

    dpkg(root.path(), &["--remove", "overbook"]);
    assert!(files(root.path()).iter().all(|file| file.starts_with("etc")), "{:?}", files(root.path()));
    dpkg(root.path(), &["--purge", "overbook"]);
    assert_eq!(files(root.path()), Vec::<PathBuf>::new());
}

/// Packages that were handed to others are told apart and made again, to the last bit.
#[test]
fn a_package_is_made_the_same_twice() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (a, b) = (build(first.path()), build(second.path()));
    assert_eq!(a.file_name(), b.file_name());
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "the packages differ");
}

/// Whatever pages and documents name is in the package.
#[test]
fn pages_and_documents_of_the_package_name_what_is_in_it() {
    let (out, root) = (TempDir::new().unwrap(), empty_root());
    dpkg(root.path(), &["--install", build(out.path()).to_str().unwrap()]);
    let pages = fs::read_dir(root.path().join("usr/share/man/man1")).unwrap().flatten();
    let mut named = 0;
    for page in pages {
        let page = run("zcat", &[page.path().to_str().unwrap()]).replace("\\-", "-");
        for word in page.split(|c: char| c.is_whitespace() || c == '\\') {
            let word = word.trim_start_matches("fB");
            // What node-feature-discovery has is not the package's.
            let others = word.starts_with("/etc/kubernetes/");
            if ["/usr/", "/etc/"].iter().any(|folder| word.starts_with(folder)) && !others {
                assert!(root.path().join(&word[1..]).exists(), "a man page names {word}");
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
    let doc = root.path().join("usr/share/doc/overbook");
    assert!(doc.join("scenarios/headline/lock-2to1.toml").exists());
    for file in files(&doc).iter().filter(|file| file.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(doc.join(file)).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            let path = doc.join(file).parent().unwrap().join(target);
            assert!(target.starts_with("http") || path.exists(), "{} links to {target}", file.display());
        }
    }
}
