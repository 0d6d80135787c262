// SPDX-License-Identifier: GPL-2.0-only
//! How the VMs of this host are laid out, in classes: names of groups stay here.

use overbook_lab::machine::describe::parse_cpus;
use overbook_observe::vms::Threads;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How VMs are laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// VMs.
    pub vms: usize,
    /// Their vCPUs.
    pub vcpus: usize,
    /// `flat`: all VMs in one group; `per-vm`: each in its own; `per-vcpu`: each vCPU in its own; `mixed`; `none`.
    pub cgroups: &'static str,
    /// `free`: vCPUs may use all CPUs; `pinned`: one each; `pools`: some; `mixed`; `none`.
    pub placement: &'static str,
}

/// Looks at the VMs of a host whose files are below `root`.
pub fn look(root: &Path, vms: &BTreeMap<i32, Threads>, cpus: usize) -> Layout {
    let task = |pid: &i32, tid: &i32, file: &str| {
        fs::read_to_string(root.join(format!("proc/{pid}/task/{tid}/{file}"))).unwrap_or_default()
    };
    let groups: Vec<Vec<String>> = vms
        .iter()
        .map(|(pid, threads)| threads.values().map(|tid| group(&task(pid, tid, "cgroup"))).collect())
        .collect();
    let allowed =
        vms.iter().flat_map(|(pid, threads)| threads.values().map(|tid| allowed(&task(pid, tid, "status"))));
    Layout {
        vms: vms.len(),
        vcpus: vms.values().map(BTreeMap::len).sum(),
        cgroups: of_groups(&groups),
        placement: of_places(allowed.flatten(), cpus),
    }
}

/// The group of a task in the unified hierarchy, or in that of cpu.
fn group(cgroup: &str) -> String {
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        (controllers.is_empty() || controllers.split(',').any(|c| c == "cpu")).then(|| path.to_string())
    };
    cgroup.lines().find_map(of).unwrap_or_default()
}

/// How many CPUs a task may use.
fn allowed(status: &str) -> Option<usize> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(parse_cpus(list).ok()?.len())
}

/// The class of the groups of the vCPUs of VMs.
fn of_groups(vms: &[Vec<String>]) -> &'static str {
    let of_vm: Vec<BTreeSet<&String>> = vms.iter().map(|vcpus| vcpus.iter().collect()).collect();
    let all: BTreeSet<&String> = of_vm.iter().flatten().copied().collect();
    let vcpus: usize = vms.iter().map(Vec::len).sum();
    match (vms.len(), all.len()) {
        _ if vcpus == 0 => "none",
        (_, groups) if groups == vcpus && vcpus > vms.len() => "per-vcpu",
        (vms, groups) if groups == vms && of_vm.iter().all(|own| own.len() == 1) => "per-vm",
        (_, 1) => "flat",
        _ => "mixed",
    }
}

/// The class of how many CPUs vCPUs may use, of so many.
fn of_places(allowed: impl Iterator<Item = usize>, cpus: usize) -> &'static str {
    let of = |many: usize| match many {
        many if many >= cpus => "free",
        1 => "pinned",
        _ => "pools",
    };
    let classes: BTreeSet<&str> = allowed.map(of).collect();
    match classes.len() {
        0 => "none",
        1 => classes.into_iter().next().unwrap_or("none"),
        _ => "mixed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(vms: &[&[&str]]) -> &'static str {
        of_groups(&vms.iter().map(|vcpus| vcpus.iter().map(|g| g.to_string()).collect()).collect::<Vec<_>>())
    }

    #[test]
    fn groups_have_classes() {
        assert_eq!(class(&[]), "none");
        assert_eq!(class(&[&["/a", "/a"], &["/a", "/a"]]), "flat");
        assert_eq!(class(&[&["/a", "/a"], &["/b", "/b"]]), "per-vm");
        assert_eq!(class(&[&["/a/vcpu0", "/a/vcpu1"], &["/b/vcpu0", "/b/vcpu1"]]), "per-vcpu");
        assert_eq!(class(&[&["/a"], &["/b"]]), "per-vm", "of one vCPU each");
        assert_eq!(class(&[&["/a", "/a"], &["/a", "/b"]]), "mixed");
        assert_eq!(class(&[&["/a", "/a"]]), "per-vm", "one VM is alone in its group, as far as VMs go");
    }

    #[test]
    fn places_have_classes_and_tasks_are_read() {
        let of = |list: &[usize]| of_places(list.iter().copied(), 8);
        assert_eq!(
            [of(&[8, 8]), of(&[1, 1]), of(&[4, 4]), of(&[8, 1]), of(&[])],
            ["free", "pinned", "pools", "mixed", "none"]
        );
        assert_eq!(allowed("Name:\tx\nCpus_allowed_list:\t0-3,8\n"), Some(5));
        assert_eq!(group("1:name=systemd:/x\n4:cpu,cpuacct:/y\n0::/z\n"), "/y");
        assert_eq!(group("0::/machine.slice/a.scope/vcpu0\n"), "/machine.slice/a.scope/vcpu0");
    }
}
