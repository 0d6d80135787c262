// SPDX-License-Identifier: GPL-2.0-only
//! Which class a VM has (`policy/class.h`): by patterns, or as somebody has said of this VM while it runs.

use crate::assignments::{self, Assignments};
use crate::settings::Settings;
use anyhow::{Result, bail};
use overbook_policy::class::Class;
use overbook_scheduler::Scheduler;
use overbook_vms::names::{self, Identity};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Argument of a request for statistics that says a VM's class first: `PID=CLASS`. It has been written down by then, and is
/// looked for at once; a scheduler from before an upgrade goes by the argument alone.
pub const TELL: &str = "class";

/// Begins a pattern of a cgroup's path.
const CGROUP: &str = "cgroup:";

/// How often new VMs are looked for.
const PERIOD: Duration = Duration::from_millis(250);

/// Patterns of VMs: globs with `*`, `?` and `[…]`, of names, or of cgroups' paths behind `cgroup:`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patterns(Vec<glob::Pattern>);

impl FromStr for Patterns {
    type Err = String;

    fn from_str(text: &str) -> Result<Patterns, String> {
        let one = |pattern: &str| {
            if pattern.contains(char::is_whitespace) {
                return Err(format!("{pattern:?} has a space, for which a ? belongs in a pattern"));
            }
            glob::Pattern::new(pattern).map_err(|why| format!("{pattern:?} is no pattern: {}", why.msg))
        };
        let all = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        all.map(one).collect::<Result<_, _>>().map(Patterns)
    }
}

/// As they are written: with commas between.
impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(glob::Pattern::as_str).collect();
        f.write_str(&words.join(","))
    }
}

impl Serialize for Patterns {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Patterns {
    /// Whether one of them fits a VM: its name, its namespace and name, its id, or its cgroup.
    pub fn fit(&self, vm: &Known) -> bool {
        let names = [vm.who.to_string(), vm.who.name.clone(), vm.who.id.clone()];
        let groups = || vm.cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        self.0.iter().any(|pattern| match pattern.as_str().strip_prefix(CGROUP) {
            // What is a pattern whole is one without its beginning.
            Some(path) => {
                glob::Pattern::new(path).is_ok_and(|path| groups().any(|group| path.matches(group)))
            }
            None => names.iter().any(|name| !name.is_empty() && pattern.matches(name)),
        })
    }
}

/// Before a process that is meant, and not a VMID of the same number.
const PROCESS: &str = "pid:";

/// What patterns look at.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// As its operators know it.
    pub who: Identity,
    /// `/proc/PID/cgroup`.
    pub cgroup: String,
}

impl Known {
    /// The VM of a process.
    pub fn of(pid: u32) -> Known {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Known { who: names::of(pid), cgroup }
    }
}

/// The class by patterns: latency is asked for first.
pub fn by_patterns(latency: &Patterns, batch: &Patterns, vm: &Known) -> Class {
    match () {
        () if latency.fit(vm) => Class::Latency,
        () if batch.fit(vm) => Class::Batch,
        () => Class::Normal,
    }
}

/// `NAME=CLASS`: what somebody says of a VM that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Name, namespace/name, UUID, VMID or process.
    pub vm: String,
    /// Its class from now on.
    pub class: Class,
}

/// Reads `NAME=CLASS`.
///
/// # Errors
/// It is none; one sentence.
pub fn assignment(text: &str) -> Result<Assignment, String> {
    let (vm, class) = text.rsplit_once('=').unwrap_or_default();
    match (vm.trim(), Class::named(class.trim())) {
        (vm, Some(class)) if !vm.is_empty() => Ok(Assignment { vm: vm.into(), class }),
        _ => Err("NAME=CLASS belongs here, as in web1=latency; classes are normal, latency, batch".into()),
    }
}

/// The process of the VM that is named so: by its name, namespace/name, UUID or VMID; or by its process, which `pid:` before
/// it says for sure.
///
/// # Errors
/// There is none, or more than one; one sentence.
pub fn find(name: &str) -> Result<(u32, Identity)> {
    one_of(name, overbook_vms::processes().map(|pid| (pid, names::of(pid))).collect())
}

fn one_of(name: &str, vms: Vec<(u32, Identity)>) -> Result<(u32, Identity)> {
    // Tenants choose names, and may choose another's ID or process: what says more surely which VM is meant comes first.
    type Says = fn(&(u32, Identity), &str) -> bool;
    let by_process: Says = |(pid, _), process| pid.to_string() == process;
    let ways: &[Says] = match name.starts_with(PROCESS) {
        true => &[by_process],
        false => &[
            |(_, who), name| who.id == name,
            |(_, who), name| who.to_string() == name || who.name == name,
            by_process,
        ],
    };
    let wanted = name.strip_prefix(PROCESS).unwrap_or(name);
    let mut found = ways.iter().map(|says| vms.iter().filter(|vm| says(vm, wanted)).collect::<Vec<_>>());
    let found = found.find(|found| !found.is_empty()).unwrap_or_default();
    match found[..] {
        [only] => Ok(only.clone()),
        [] => bail!(
            "no VM that runs here has the name, UUID, VMID or process {name:?}: `overbook report` lists all"
        ),
        _ => bail!("{} VMs are named {name:?}: say which by its UUID or process", found.len()),
    }
}

/// Tells the scheduler the classes of VMs, look by look.
pub struct Classes {
    /// What somebody has said, and by process.
    assignments: Assignments,
    said: BTreeMap<u32, Class>,
    /// By place and process, what patterns say, and these patterns.
    found: BTreeMap<(u32, u32), Class>,
    patterns: (Patterns, Patterns),
    /// Whether a VM had another class than normal.
    any: bool,
    due: Option<Instant>,
}

impl Default for Classes {
    fn default() -> Classes {
        Classes {
            assignments: Assignments::of(Path::new(assignments::FILE)),
            said: BTreeMap::new(),
            found: BTreeMap::new(),
            patterns: Default::default(),
            any: false,
            due: None,
        }
    }
}

impl Classes {
    /// The next look is due.
    pub fn look_at_once(&mut self) {
        self.due = None;
    }

    /// Does what is due; to be called now and then.
    ///
    /// # Errors
    /// What the scheduler knows cannot be read.
    pub fn look(&mut self, scheduler: &mut Scheduler, settings: &Settings) -> Result<()> {
        let patterns = (&settings.latency_vms, &settings.batch_vms);
        if patterns != (&self.patterns.0, &self.patterns.1) {
            self.patterns = (patterns.0.clone(), patterns.1.clone());
            self.found.clear();
            self.due = None;
        }
        if self.due.is_some_and(|due| Instant::now() < due) {
            return Ok(());
        }
        self.due = Some(Instant::now() + PERIOD);
        self.assignments.look();
        self.said = self.assignments.classes();
        if !self.any && self.said.is_empty() && self.patterns == Default::default() {
            return Ok(());
        }
        let places = scheduler.places()?;
        let classes: Vec<(u32, Class)> =
            places.iter().map(|(place, pid)| (*place, self.class_of(*place, *pid))).collect();
        self.found.retain(|(place, pid), _| places.contains(&(*place, *pid)));
        self.any = classes.iter().any(|(_, class)| *class != Class::Normal);
        scheduler.classify(&classes)
    }

    fn class_of(&mut self, place: u32, pid: u32) -> Class {
        if let Some(class) = self.said.get(&pid) {
            return *class;
        }
        let (latency, batch) = &self.patterns;
        let found = self.found.entry((place, pid));
        *found.or_insert_with(|| by_patterns(latency, batch, &Known::of(pid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(namespace: &str, name: &str, id: &str) -> Known {
        let who =
            Identity { name: name.into(), namespace: namespace.into(), id: id.into(), ..Identity::default() };
        Known { who, cgroup: "0::/machine.slice/machine-qemu\\x2d7\\x2dweb.scope/libvirt/emulator\n".into() }
    }

    fn fits(pattern: &str, vm: &Known) -> bool {
        pattern.parse::<Patterns>().unwrap().fit(vm)
    }

    #[test]
    fn patterns_fit_names_as_each_stack_has_them() {
        let (libvirt, kubevirt, proxmox) =
            (vm("", "web-1", "8d5c"), vm("shop", "web", ""), vm("", "db", "104"));
        for pattern in ["web-*", "*", "web-?", "web-[0-9]", "x,web-1", "8d5c", " web-1 "] {
            assert!(fits(pattern, &libvirt), "{pattern}");
        }
        for pattern in ["web", "eb-1", "WEB-*", "", "cgroup:web*"] {
            assert!(!fits(pattern, &libvirt), "{pattern}");
        }
        assert!(fits("shop/*", &kubevirt) && fits("web", &kubevirt) && !fits("till/*", &kubevirt));
        assert!(fits("104", &proxmox) && fits("10?", &proxmox) && !fits("105", &proxmox));
        // What is not known of a VM fits nothing.
        assert!(!fits("?*", &vm("", "", "")));
    }

    #[test]
    fn patterns_of_cgroups_fit_the_whole_path() {
        let one = vm("", "web", "");
        for pattern in ["cgroup:/machine.slice/*", "cgroup:*web.scope*", "cgroup:*"] {
            assert!(fits(pattern, &one), "{pattern}");
        }
        for pattern in ["cgroup:/machine.slice", "cgroup:machine.slice/*", "/machine.slice/*", "cgroup:"] {
            assert!(!fits(pattern, &one), "{pattern}");
        }
    }

    #[test]
    fn latency_is_asked_for_first() {
        let of = |latency: &str, batch: &str| {
            by_patterns(&latency.parse().unwrap(), &batch.parse().unwrap(), &vm("", "web", ""))
        };
        assert_eq!(
            (of("web", "*"), of("db", "*"), of("db", "")),
            (Class::Latency, Class::Batch, Class::Normal)
        );
    }

    #[test]
    fn patterns_are_written_as_they_are_read() {
        let patterns: Patterns = " web-*, ,cgroup:/a/[b-d]?".parse().unwrap();
        assert_eq!(patterns.to_string(), "web-*,cgroup:/a/[b-d]?");
        assert_eq!(patterns.to_string().parse::<Patterns>().unwrap(), patterns);
        assert_eq!("".parse::<Patterns>().unwrap(), Patterns::default());
        for (wrong, why) in [("my vm", "a ? belongs"), ("a[", "is no pattern"), ("x,***", "is no pattern")] {
            let said = wrong.parse::<Patterns>().unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_vm_is_found_by_all_that_names_it() {
        let named = |pid: u32, namespace: &str, name: &str, id: &str| (pid, vm(namespace, name, id).who);
        let all = vec![named(71, "a", "web", "u1"), named(72, "b", "web", "u2"), named(104, "", "db", "71")];
        let found = |name: &str| one_of(name, all.clone()).map(|(pid, _)| pid).map_err(|e| e.to_string());
        assert_eq!(
            (found("a/web"), found("u2"), found("db"), found("72")),
            (Ok(71), Ok(72), Ok(104), Ok(72))
        );
        // A VMID goes before a process, if nothing says which is meant.
        assert_eq!((found("71"), found("pid:71")), (Ok(104), Ok(71)));
        assert!(found("web").unwrap_err().contains("2 VMs are named \"web\""));
        // Neither has a VM another's ID or process by its name.
        let named_so =
            vec![named(71, "", "u2", "u1"), named(72, "", "pid:71", "u2"), named(73, "", "71", "u3")];
        let found_so = |name: &str| one_of(name, named_so.clone()).map(|(pid, _)| pid).unwrap();
        assert_eq!((found_so("u2"), found_so("pid:71"), found_so("u1")), (72, 71, 71));
        assert!(found("mail").unwrap_err().contains("no VM that runs here"));
    }

    #[test]
    fn an_assignment_is_a_name_and_a_class() {
        assert_eq!(assignment("a=b=batch"), Ok(Assignment { vm: "a=b".into(), class: Class::Batch }));
        assert_eq!(assignment(" shop/web = latency ").unwrap().vm, "shop/web");
        for wrong in ["", "web", "=latency", "web=", "web=fast", "latency"] {
            assert!(assignment(wrong).unwrap_err().starts_with("NAME=CLASS belongs here"), "{wrong}");
        }
    }
}
