// SPDX-License-Identifier: GPL-2.0-only
//! What is in the file, and what is not: names and addresses are planted wherever a host may have one.

use super::*;
use std::fs;
use tempfile::TempDir;

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host whose every file has a name in it wherever a file may have one.
fn planted(root: &Path, name: &str, mac: &str, ip: &str) -> Own {
    for (file, text) in [
        ("proc/sys/kernel/hostname", format!("{name}.{name}-lan.example\n")),
        ("etc/hostname", format!("{name}\n")),
        ("etc/machine-id", format!("{name}0123\n")),
        ("sys/class/dmi/id/product_serial", format!("SN-{name}\n")),
        ("sys/class/dmi/id/product_uuid", "550e8400-e29b-41d4-a716-446655440000\n".into()),
        ("sys/class/net/eth0/address", format!("{mac}\n")),
        (
            "proc/cmdline",
            format!(
                "root=/dev/mapper/{name}-root ip={ip}::::{name}:eth0 mitigations=off isolcpus=1 preempt={name} {name} \
                 console=ttyS0 idle={ip}\n"
            ),
        ),
        (
            "proc/cpuinfo",
            format!(
                "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon Gold 6248 {name}\n\
                 stepping\t: 7\nmicrocode\t: 0x5003604\nflags\t\t: fpu vmx hypervisor {name}\nvmx flags\t: ple ept\n"
            ),
        ),
        ("proc/sys/kernel/osrelease", format!("6.18.15-{name}\n")),
        ("sys/devices/system/cpu/online", "0-3\n".into()),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", format!("{name}\n")),
        (
            "sys/devices/system/cpu/vulnerabilities/spectre_v2",
            format!("Mitigation: Retpolines {name} {ip}\n"),
        ),
        ("sys/kernel/debug/sched/preempt", format!("none (full) {mac}\n")),
        ("sys/module/kvm/initstate", "live\n".into()),
        ("sys/module/kvm_intel/parameters/ple_gap", "128\n".into()),
        ("sys/module/kvm_intel/parameters/nested", format!("/{name}\n")),
        ("proc/7/task/8/cgroup", format!("0::/machine.slice/{name}.scope/vcpu0\n")),
        ("proc/7/task/9/cgroup", format!("0::/machine.slice/{name}.scope/vcpu1\n")),
        ("proc/7/task/8/status", format!("Name:\t{name}\nCpus_allowed_list:\t0-3\n")),
    ] {
        put(root, file, &text);
    }
    let mut own = Own::of(root);
    own.add(&format!("{name}-guest"));
    own
}

fn document(root: &Path, name: &str) -> Document {
    use overbook_observe::window::{VcpuRow, VmRow};
    let vms = [(7, [(0, 8), (1, 9)].into())].into();
    let row = VmRow {
        pid: 7,
        name: format!("{name}-guest"),
        run: 1.0,
        wait: 0.5,
        vcpus: vec![VcpuRow::default(); 2],
        ..VmRow::default()
    };
    let window =
        Window { seconds: 10.0, cpus: 4, scheduler: name.into(), vms: vec![row], ..Window::default() };
    let host = Some(HostPiece::of(&window, &mut Numbers::default()));
    let machine = machine::look(root, Some("KVMKVMKVM".into()));
    Document {
        evidence: SCHEMA,
        overbook: "0.1.0",
        complete: true,
        seconds: 10.0,
        vms: layout::look(root, &vms, machine.layout.cpus),
        machine,
        missing: vec![brief(&format!("limits of /x/{name}.scope, and more: /machine.slice/{name}.scope"))],
        compared: Vec::new(),
        pieces: vec![Piece { scheduler: "EEVDF".into(), host, bench: None }],
        far: None,
    }
}

#[test]
fn what_it_is_for_is_in_it() {
    let root = TempDir::new().unwrap();
    let own = planted(root.path(), "hv-berlin-07", "52:54:00:12:34:56", "10.20.30.40");
    let text = document(root.path(), "hv-berlin-07").text(&own).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["machine"]["cpu"]["stepping"], "7");
    assert_eq!(value["machine"]["cpu"]["microcode"], "0x5003604");
    assert_eq!(value["machine"]["cpu"]["name"], "Xeon Gold 6248 [removed]");
    assert_eq!(value["machine"]["kvm"]["parameters"]["kvm_intel.ple_gap"], "128");
    assert_eq!(value["machine"]["hypervisor"], "KVMKVMKVM");
    let switches = value["machine"]["kernel"]["switches"].as_array().unwrap();
    assert!(
        switches.contains(&"mitigations=off".into()) && switches.contains(&"isolcpus".into()),
        "{switches:?}"
    );
    assert_eq!((&value["vms"]["cgroups"], &value["vms"]["placement"]), (&"per-vcpu".into(), &"free".into()));
    assert_eq!(value["pieces"][0]["host"]["vms"][0]["name"], "vm1");
    assert_eq!(value["pieces"][0]["host"]["ready_percent"], 25.0);
}

#[test]
fn reasons_are_told_without_paths() {
    assert_eq!(brief("cannot open /dev/kvm: run as root"), "cannot open /dev/kvm");
    assert_eq!(
        brief("cpu.max limits these groups, and so on: /machine.slice/a.scope"),
        "cpu.max limits these groups, and so on"
    );
    assert_eq!(brief("cannot read /proc/7/x"), "cannot read [removed]");
    let other = r#"the scheduler "acme_prod" is loaded already: stop it first"#;
    assert_eq!(brief(other), "the scheduler [removed] is loaded already");
}

/// Names of many forms, and addresses: nothing of them is in the text, wherever they were.
#[test]
fn no_name_and_no_address_leaves() {
    let names =
        ["hv-berlin-07", "Kunde_Meier", "db1", "x7q", "node", "ACME-prod", "vcenter99", "intel2", "proxmox"];
    for (nth, name) in names.into_iter().enumerate() {
        let root = TempDir::new().unwrap();
        let mac = format!("52:54:00:aa:bb:{nth:02x}");
        let ip = format!("192.0.2.{}", nth + 1);
        let own = planted(root.path(), name, &mac, &ip);
        let text = document(root.path(), name).text(&own).unwrap();
        // `node` is a word of the file's own form: of the values, and of values alone, it must be gone.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut texts = Vec::new();
        values(&value, &mut texts);
        let name = name.to_lowercase();
        for text in texts {
            let small = text.to_lowercase();
            let words = small.split(|c: char| !c.is_ascii_alphanumeric());
            let found = words.clone().any(|word| word == name) || (name.len() > 5 && small.contains(&name));
            assert!(!found, "{name} is in {text:?}");
            assert!(!small.contains(&mac) && !small.contains(&ip) && !small.contains("550e8400"), "{text}");
        }
    }
}

fn values(value: &serde_json::Value, texts: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => texts.push(text.clone()),
        serde_json::Value::Array(list) => list.iter().for_each(|value| values(value, texts)),
        serde_json::Value::Object(map) => map.values().for_each(|value| values(value, texts)),
        _ => {}
    }
}

#[test]
fn every_field_is_documented() {
    let document_text = include_str!("../../../../docs/evidence.md");
    let root = TempDir::new().unwrap();
    let own = planted(root.path(), "hv-berlin-07", "52:54:00:12:34:56", "10.20.30.40");
    let mut document = document(root.path(), "hv-berlin-07");
    document.pieces[0].bench = Some(BenchPiece::default());
    document.compared = figures::compare(&[
        document.pieces[0].clone(),
        Piece { scheduler: "overbook".into(), ..document.pieces[0].clone() },
    ]);
    assert!(!document.compared.is_empty());
    let value: serde_json::Value = serde_json::from_str(&document.text(&own).unwrap()).unwrap();
    let mut keys = Vec::new();
    fields(&value, &mut keys);
    for key in keys {
        assert!(document_text.contains(&format!("`{key}`")), "docs/evidence.md does not mention `{key}`");
    }
}

fn fields(value: &serde_json::Value, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                keys.push(key.clone());
                // Keys of these are data; `far` is documented where it is made.
                if !["parameters", "mitigations", "counters", "far"].contains(&key.as_str()) {
                    fields(value, keys);
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, keys)),
        _ => {}
    }
}
