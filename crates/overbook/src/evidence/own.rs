// SPDX-License-Identifier: GPL-2.0-only
//! Names and addresses that are this host's own, and that nothing leaves with. What is written is made of known words and
//! numbers to begin with; this is the second lock.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What stands instead.
pub const REMOVED: &str = "[removed]";

/// Shorter names would be found in any text.
const SHORTEST: usize = 3;

/// Names that are nobody's.
const NOBODYS: [&str; 12] = [
    "localhost",
    "localdomain",
    "none",
    "lan",
    "local",
    "default string",
    "to be filled by o.e.m.",
    "not specified",
    "unknown",
    "linux",
    "(none)",
    "home",
];

/// Names and addresses of a host.
#[derive(Clone, Debug, Default)]
pub struct Own(BTreeSet<String>);

impl Own {
    /// Those of a host whose files are below `root`.
    pub fn of(root: &Path) -> Own {
        let mut own = Own::default();
        for file in ["proc/sys/kernel/hostname", "proc/sys/kernel/domainname", "etc/hostname"] {
            let name = fs::read_to_string(root.join(file)).unwrap_or_default();
            // Of a name with dots, each label is a name.
            name.trim().split('.').chain([name.trim()]).for_each(|label| own.add(label));
        }
        let serials = [
            "product_serial",
            "product_uuid",
            "board_serial",
            "chassis_serial",
            "chassis_asset_tag",
            "board_asset_tag",
        ];
        let serials = serials.map(|name| format!("sys/class/dmi/id/{name}"));
        for file in
            serials.iter().map(String::as_str).chain(["etc/machine-id", "proc/sys/kernel/random/boot_id"])
        {
            own.add(fs::read_to_string(root.join(file)).unwrap_or_default().trim());
        }
        let interfaces = fs::read_dir(root.join("sys/class/net")).into_iter().flatten().flatten();
        for interface in interfaces {
            own.add(fs::read_to_string(interface.path().join("address")).unwrap_or_default().trim());
        }
        own
    }

    /// Adds a name, if it is one.
    pub fn add(&mut self, name: &str) {
        let name = name.to_lowercase();
        let tells = name.chars().any(|c| c.is_ascii_alphanumeric() && c != '0');
        // As those that stand for the names.
        let ours = name.strip_prefix("vm").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        if name.len() >= SHORTEST && tells && !ours && !NOBODYS.contains(&name.as_str()) {
            self.0.insert(name);
        }
    }

    /// Takes them out of all texts of a value, and whatever looks like an address or a UUID. Keys are words of ours.
    pub fn remove_from(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.without(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.remove_from(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.remove_from(value)),
            _ => {}
        }
    }

    fn without(&self, text: &str) -> String {
        let mut text = text.to_string();
        for name in &self.0 {
            // ASCII keeps its places when it is made small.
            let mut from = 0;
            while let Some(at) =
                text.to_ascii_lowercase().get(from..).and_then(|rest| rest.find(name.as_str()))
            {
                let (begin, end) = (from + at, from + at + name.len());
                let ends = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
                let whole = ends(text[..begin].chars().next_back()) && ends(text[end..].chars().next());
                // Long names are found inside of words, too.
                if whole || name.len() > 5 {
                    text.replace_range(begin..end, REMOVED);
                    from = begin + REMOVED.len();
                } else {
                    from = end;
                }
            }
        }
        let mut kept = String::new();
        for (nth, word) in text.split(' ').enumerate() {
            kept += if nth > 0 { " " } else { "" };
            kept += if is_address(word) { REMOVED } else { word };
        }
        kept
    }
}

/// Whether a word is an address of IPv4 or IPv6, of Ethernet, or a UUID.
fn is_address(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != ':');
    let hex = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
    let parts = |by: char| word.split(by).map(str::len).collect::<Vec<_>>();
    let mac = [':', '-'].into_iter().any(|by| parts(by) == [2; 6] && word.split(by).all(hex));
    let uuid = parts('-') == [8, 4, 4, 4, 12] && word.split('-').all(hex);
    mac || uuid || word.parse::<std::net::IpAddr>().is_ok_and(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_addresses_go_and_all_else_stays() {
        let mut own = Own::default();
        ["web1", "db", "localhost", "000", "vm7", "hv-07.example.org"].iter().for_each(|name| own.add(name));
        let mut value = json!({
            "a": "KVM of web1, and WEB1 (web12)", "vms": ["x hv-07.example.org y", 5, null, "vm7"],
            "b": "10.1.2.3 fe80::1 52:54:00:12:34:56 550e8400-e29b-41d4-a716-446655440000 6.18.15 0x1a",
            "c": "AMD EPYC 7742 64-Core Processor db localhost",
        });
        own.remove_from(&mut value);
        let expected = json!({
            "a": "KVM of [removed], and [removed] (web12)", "vms": ["x [removed] y", 5, null, "vm7"],
            "b": "[removed] [removed] [removed] [removed] 6.18.15 0x1a",
            "c": "AMD EPYC 7742 64-Core Processor db localhost",
        });
        assert_eq!(value, expected);
    }
}
