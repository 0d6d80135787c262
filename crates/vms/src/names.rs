// SPDX-License-Identifier: GPL-2.0-only
//! What operators call a VM: its name in libvirt, KubeVirt, OpenStack or Proxmox, or QEMU's own.
//!
//! All that is looked at is QEMU's command line, its cgroup, and for OpenStack libvirt's status file, which holds what Nova
//! has told libvirt. Nobody is asked over a socket: names must be had where a host is in trouble too.

use crate::nova;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::Read;

/// Bytes of the largest status file of libvirt that is read.
const LARGEST: u64 = 1 << 20;

/// Who manages a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// libvirt, by itself.
    Libvirt,
    /// KubeVirt, and what is made of it (OpenShift Virtualization, Harvester).
    KubeVirt,
    /// OpenStack Nova.
    OpenStack,
    /// Proxmox VE.
    Proxmox,
    /// Nobody: QEMU was started by hand, or by something unknown.
    Qemu,
    /// A VMM other than QEMU.
    #[default]
    Other,
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Stack::Libvirt => "libvirt",
            Stack::KubeVirt => "kubevirt",
            Stack::OpenStack => "openstack",
            Stack::Proxmox => "proxmox",
            Stack::Qemu => "qemu",
            Stack::Other => "other",
        })
    }
}

/// A VM, as its operators know it. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// Name: libvirt's domain, KubeVirt's VMI, Proxmox' VM, OpenStack's instance as its owner named it, QEMU's `-name`.
    pub name: String,
    /// KubeVirt: the namespace. OpenStack: the project.
    pub namespace: String,
    /// Proxmox: the VMID. Others: the UUID.
    pub id: String,
    /// Who manages it.
    pub stack: Stack,
}

/// `namespace/name`, or the name where there is no namespace.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

/// What is known of a VM's process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Its process.
    pub pid: u32,
    /// Words of its command line.
    pub words: &'a [String],
    /// `/proc/PID/cgroup`.
    pub cgroup: &'a str,
    /// `/proc/PID/comm`.
    pub comm: &'a str,
}

/// Looks at a process. One that has gone is named so.
pub fn of(pid: u32) -> Identity {
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let text = |what: &str| String::from_utf8_lossy(&read(what)).into_owned();
    let cmdline = read("cmdline");
    let words = cmdline.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let words: Vec<String> = words.collect();
    let (cgroup, comm) = (text("cgroup"), text("comm"));
    let facts = Facts { pid, words: &words, cgroup: &cgroup, comm: &comm };
    identity(&facts, &status_file)
}

/// libvirt's status file of a domain; only root may read it.
fn status_file(domain: &str) -> Option<String> {
    // A name of several folders is none of libvirt's.
    let file =
        (!domain.contains('/')).then(|| File::open(format!("/run/libvirt/qemu/{domain}.xml")))?.ok()?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Who a VM is; `status` has libvirt's status file of a domain, if there is one.
pub fn identity(facts: &Facts, status: &dyn Fn(&str) -> Option<String>) -> Identity {
    let named = qemu_name(facts.words);
    let stack = stack(facts);
    let name = named.clone().or_else(|| scope_name(facts.cgroup));
    let id = value_of(facts.words, "-uuid").or_else(|| smbios(facts.words, "uuid")).unwrap_or_default();
    let plain = Identity { name: name.unwrap_or_default(), namespace: String::new(), id, stack };
    let found = match stack {
        Stack::KubeVirt => match plain.name.split_once('_') {
            // Neither may have a `_` of its own (RFC 1123).
            Some((namespace, name)) => {
                Identity { name: name.into(), namespace: namespace.into(), ..plain.clone() }
            }
            None => plain,
        },
        Stack::Proxmox => {
            let id = vmid(facts).unwrap_or_default();
            let name = if plain.name.is_empty() { id.clone() } else { plain.name.clone() };
            Identity { name, id, ..plain }
        }
        Stack::OpenStack => match status(&plain.name).and_then(|xml| nova::instance(&xml, facts.pid)) {
            Some(nova) => Identity { name: nova.name, namespace: nova.project, ..plain },
            None => plain,
        },
        Stack::Other => {
            let name = value_of(facts.words, "--id").unwrap_or(plain.name);
            Identity { name, ..plain }
        }
        Stack::Libvirt | Stack::Qemu => plain,
    };
    let comm = facts.comm.trim();
    let name = match (found.name.is_empty(), comm.is_empty()) {
        (true, true) => "gone",
        (true, false) => comm,
        (false, _) => &found.name,
    };
    Identity { name: shown(name), namespace: shown(&found.namespace), id: shown(&found.id), ..found }
}

/// Most characters of a name: libvirt's and Kubernetes' have 253 at the most.
const LONGEST: usize = 253;

/// Whether a character acts on a terminal, or on the order in which others stand there (Unicode's bidirectional controls).
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name, or another word of somebody else's, without what acts on a terminal. Whoever starts a VM chooses its name, and
/// root's terminal and journal show it; and a recording may be from anybody.
pub fn shown(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if acts(c) { '·' } else { c }).collect()
}

/// Who manages the VM of a process.
fn stack(facts: &Facts) -> Stack {
    let is = |field: &str, what: &str| smbios(facts.words, field).is_some_and(|value| value.contains(what));
    let libvirt = facts.words.iter().any(|word| word.contains("/libvirt/qemu/"));
    let name = qemu_name(facts.words);
    if is("product", "OpenStack") || is("manufacturer", "OpenStack") {
        Stack::OpenStack
    } else if is("family", "KubeVirt")
        || is("manufacturer", "KubeVirt")
        // Products made of it write their own names there.
        || (facts.cgroup.contains("kubepods") && libvirt && name.as_ref().is_some_and(|n| n.contains('_')))
    {
        Stack::KubeVirt
    } else if vmid(facts).is_some() {
        Stack::Proxmox
    } else if libvirt || scope_name(facts.cgroup).is_some() {
        Stack::Libvirt
    } else if name.is_some() || is_qemu(facts) {
        Stack::Qemu
    } else {
        Stack::Other
    }
}

fn is_qemu(facts: &Facts) -> bool {
    let program = facts.words.first().map(String::as_str).unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    ["qemu-system", "qemu-kvm"].iter().any(|start| program.starts_with(start)) || program == "kvm"
}

/// The word behind an option.
fn value_of(words: &[String], option: &str) -> Option<String> {
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).filter(|value| !value.is_empty()).cloned()
}

/// QEMU's options of one word, `a=1,b=2`; a comma in a value is written twice.
fn fields(text: &str) -> Vec<String> {
    let whole = text.replace(",,", "\u{0}");
    whole.split(',').map(|field| field.replace('\u{0}', ",")).collect()
}

/// QEMU's `-name`: the first field, or `guest=`, as libvirt writes it.
fn qemu_name(words: &[String]) -> Option<String> {
    let fields = fields(&value_of(words, "-name")?);
    let guest = fields.iter().find_map(|field| field.strip_prefix("guest="));
    let first = fields.first().map(String::as_str).filter(|field| !field.contains('='));
    guest.or(first).filter(|name| !name.is_empty()).map(str::to_string)
}

/// A field of the system's SMBIOS table (type 1).
fn smbios(words: &[String], field: &str) -> Option<String> {
    let tables = words.windows(2).filter(|pair| pair[0] == "-smbios").map(|pair| fields(&pair[1]));
    let system = tables.filter(|fields| fields.iter().any(|field| field == "type=1"));
    let value = |fields: Vec<String>| {
        fields.iter().find_map(|text| Some(text.strip_prefix(field)?.strip_prefix('=')?.to_string()))
    };
    system.into_iter().find_map(value)
}

/// Proxmox' VMID: the scope in its slice, or `-id`, which no QEMU but theirs has.
fn vmid(facts: &Facts) -> Option<String> {
    let is_number = |text: &String| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let scope = facts.cgroup.lines().find_map(|line| {
        Some(line.split_once("/qemu.slice/")?.1.split('/').next()?.strip_suffix(".scope")?.to_string())
    });
    scope.filter(is_number).or_else(|| value_of(facts.words, "-id").filter(is_number))
}

/// libvirt's domain in the name of a scope that systemd-machined has made: `machine-qemu\x2d7\x2dweb.scope`.
fn scope_name(cgroup: &str) -> Option<String> {
    cgroup.lines().flat_map(|line| line.split('/')).find_map(|part| {
        let scope = unescape(part.strip_prefix("machine-")?.strip_suffix(".scope")?);
        let (number, name) = scope.strip_prefix("qemu-")?.split_once('-')?;
        let known = !name.is_empty() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        known.then(|| name.to_string())
    })
}

/// Undoes systemd's escapes of a unit's name (`\x2d` is a dash).
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.strip_prefix(b"x").and_then(|digits| digits.get(..2));
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match code.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "names_test.rs"]
mod tests;
