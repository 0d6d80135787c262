// SPDX-License-Identifier: GPL-2.0-only
//! What fleets install: the manifests for Kubernetes are what its API knows, rules and dashboard are those of other
//! installations, and hooks keep no VM from starting.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn read(file: &str) -> String {
    fs::read_to_string(packaging().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"))
}

/// The documents of a file.
fn yaml(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(file)).unwrap_or_else(|why| panic!("{file}: {why}"))
}

/// What of `given` is not in `kept`, by path.
fn lost(given: &Value, kept: &Value, path: &str, found: &mut Vec<String>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given {
                lost(value, kept.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(given), Value::Array(kept)) if given.len() == kept.len() => {
            given.iter().zip(kept).for_each(|(given, kept)| lost(given, kept, &format!("{path}[]"), found));
        }
        _ if given == kept => {}
        _ => found.push(format!("{path}: {given}")),
    }
}

/// What Kubernetes' type for this would not take over.
fn unknown<T: DeserializeOwned + Serialize>(given: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match serde_json::from_value::<T>(given.clone()) {
        Ok(typed) => lost(given, &serde_json::to_value(typed).unwrap(), "", &mut found),
        Err(why) => found.push(why.to_string()),
    }
    found
}

fn unknown_of(given: &Value) -> Vec<String> {
    match given["kind"].as_str().unwrap() {
        "DaemonSet" => unknown::<DaemonSet>(given),
        "Namespace" => unknown::<Namespace>(given),
        "ServiceAccount" => unknown::<ServiceAccount>(given),
        kind => panic!("no type for {kind}"),
    }
}

const MANIFESTS: [&str; 4] =
    ["base/namespace.yaml", "base/metrics.yaml", "schedule/host.yaml", "label/label.yaml"];

fn manifests() -> Vec<Value> {
    MANIFESTS.iter().flat_map(|file| yaml(&format!("kubernetes/{file}"))).collect()
}

#[test]
fn manifests_are_what_the_api_knows() {
    let all = manifests();
    assert_eq!(all.len(), 5);
    for manifest in &all {
        assert_eq!(unknown_of(manifest), [""; 0], "{}", manifest["metadata"]["name"]);
    }
    // A slip is seen, be it of a name or of a type.
    let mut slip = all.into_iter().find(|manifest| manifest["kind"] == "DaemonSet").unwrap();
    slip["spec"]["template"]["spec"]["hostPid"] = true.into();
    assert_eq!(unknown_of(&slip), [".spec.template.spec.hostPid: true"]);
    slip["spec"]["template"]["spec"]["hostPID"] = "yes".into();
    assert!(unknown_of(&slip)[0].contains("invalid type"), "{:?}", unknown_of(&slip));
}

/// All containers of the manifests.
fn containers() -> Vec<Value> {
    let pods = manifests().into_iter().filter(|manifest| manifest["kind"] == "DaemonSet");
    pods.flat_map(|pod| pod["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone()).collect()
}

#[test]
fn containers_have_no_more_than_the_docs_say() {
    let docs = fs::read_to_string(packaging().join("../docs/fleets.md")).unwrap();
    let all = containers();
    assert_eq!(all.len(), 3);
    for container in all {
        let context = &container["securityContext"];
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{container}");
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["privileged"], Value::Null);
        // Overbook counts on a CPU when it is due; the host's CPUs are told all the same.
        assert_eq!(container["resources"]["limits"]["cpu"], Value::Null);
        for capability in context["capabilities"]["add"].as_array().unwrap() {
            let name = format!("CAP_{}", capability.as_str().unwrap());
            assert!(docs.contains(&name), "docs/fleets.md does not say what {name} is for");
        }
    }
}

/// What the program is told there, it understands.
#[test]
fn arguments_of_containers_are_those_of_the_program() {
    for container in containers() {
        let words = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let output = Command::new(env!("CARGO_BIN_EXE_overbook")).args(words).arg("--help").output().unwrap();
        assert!(output.status.success(), "{container}");
    }
    let dir = TempDir::new().unwrap();
    let config = packaging().join("kubernetes/schedule/overbook.toml");
    let uncommented =
        fs::read_to_string(config).unwrap().replace("# slice", "slice").replace("# patience", "patience");
    let file = dir.path().join("overbook.toml");
    fs::write(&file, uncommented).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    let output = command.args(["host", "--dry-run"]).env("OVERBOOK_CONFIG", &file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("overbook.toml:"), "{said}");
}

/// `packaging/prometheus/prometheusrule` makes one of the other.
#[test]
fn the_rules_of_both_are_the_same() {
    let rule = &yaml("prometheus/prometheusrule.yaml")[0];
    assert_eq!(rule["kind"], "PrometheusRule");
    assert_eq!(
        rule["spec"],
        yaml("prometheus/overbook.rules.yml")[0],
        "run packaging/prometheus/prometheusrule"
    );
}

/// Files that a kustomization names are there, and every file is named by one.
#[test]
fn kustomizations_leave_nothing_out() {
    let folders =
        ["base", "monitoring", "label", "observe", "schedule"].map(|name| format!("kubernetes/{name}"));
    for folder in folders.into_iter().chain(["prometheus".into(), "grafana".into()]) {
        let kustomization = &yaml(&format!("{folder}/kustomization.yaml"))[0];
        let names = |key: &str| kustomization[key].as_array().cloned().unwrap_or_default();
        let generated =
            names("configMapGenerator").into_iter().flat_map(|map| map["files"].as_array().unwrap().clone());
        let patches = names("patches").into_iter().map(|patch| patch["path"].clone());
        let named: BTreeSet<String> = names("resources")
            .into_iter()
            .chain(generated)
            .chain(patches)
            .map(|name| name.as_str().unwrap().to_string())
            .collect();
        assert!(!named.is_empty(), "{folder}");
        for name in &named {
            assert!(
                packaging().join(&folder).join(name).exists(),
                "{folder} names {name}, which is not there"
            );
        }
        for entry in fs::read_dir(packaging().join(&folder)).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let ours = folder.starts_with("kubernetes") && name != "kustomization.yaml";
            assert!(!ours || named.contains(&name), "{folder} does not name {name}");
        }
    }
}

/// A libvirt domain as libvirt writes it, with or without a class.
fn domain(class: &str) -> String {
    let metadata = match class {
        "" => String::new(),
        class => format!("<overbook:class xmlns:overbook=\"urn:overbook\">{class}</overbook:class>"),
    };
    format!(include_str!("data/domain.xml"), metadata = metadata)
}

/// What the hook calls the program with, and what it logs. `overbook` and `logger` are scripts that write that down: the
/// first passes on what reads XML to the real one.
fn hook(script: &str, words: &[&str], stdin: &str) -> (Vec<String>, String) {
    let dir = TempDir::new().unwrap();
    let (called, logged) = (dir.path().join("called"), dir.path().join("logged"));
    let real = env!("CARGO_BIN_EXE_overbook");
    let overbook = format!(
        "[ \"$1\" = domain-class ] && exec {real} \"$@\"\necho \"$@\" >>{}\necho 'no scheduler runs' >&2\nexit 1",
        called.display()
    );
    for (name, body) in [("overbook", overbook), ("logger", format!("cat >{}", logged.display()))] {
        let file = dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(packaging().join(script));
    command.args(words).env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()));
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // Who has no use for the XML may end before it is written.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let status = child.wait().unwrap();
    assert!(status.success(), "the hook keeps a domain from starting: {status}");
    let text = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    (text(&called).lines().map(str::to_string).collect(), text(&logged))
}

const UUID: &str = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0";

#[test]
fn a_domain_that_starts_has_the_class_that_it_asks_for() {
    let libvirt = |words: &[&str], xml: &str| hook("libvirt/qemu", words, xml);
    for operation in ["started", "reconnect"] {
        let (called, logged) = libvirt(&["web", operation, "begin", "-"], &domain("latency"));
        assert_eq!(called, [format!("host --class {UUID}=latency")]);
        assert_eq!(logged, "no scheduler runs\n");
    }
    let silent = (Vec::new(), String::new());
    assert_eq!(libvirt(&["web", "started", "begin", "-"], &domain("")), silent);
    for operation in [["prepare", "begin"], ["start", "begin"], ["stopped", "end"], ["started", "end"]] {
        let (called, logged) = libvirt(&["web", operation[0], operation[1], "-"], &domain("latency"));
        assert_eq!((called, logged), silent, "{operation:?}");
    }
    for (xml, expected) in [(domain("fast"), "there are latency, normal, batch"), ("<dom".into(), "no XML")] {
        let (called, logged) = libvirt(&["web", "started", "begin", "-"], &xml);
        assert!(called.is_empty() && logged.contains(expected), "{called:?} {logged}");
    }
}

/// Where nothing is installed that it calls.
#[test]
fn a_hook_without_overbook_lets_domains_start() {
    for (script, words) in [
        ("libvirt/qemu", ["web", "started", "begin", "-"]),
        ("proxmox/overbook-class", ["100", "post-start", "", ""]),
    ] {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(packaging().join(script));
        command.args(words).env("PATH", dir.path()).stdin(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success(), "{script}");
    }
}
