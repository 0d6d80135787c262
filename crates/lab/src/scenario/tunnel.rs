// SPDX-License-Identifier: GPL-2.0-only
//! What only the wind tunnel can run: large hosts, tasks beside VMs, trees of cgroups, changes while it runs.
//! `docs/tunnel.md` has the keys.

use super::check::{Key, Mistake, check_name, mistake, prefixed, prefixed_table, range};
use super::{Scenario, Vm};
use crate::machine::describe::parse_cpus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `[tunnel]` table: the scenario is for the wind tunnel alone. All times are in model time, before no dilation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelSpec {
    /// Kernel that is modelled: `6.18`, `7.0`, …
    pub kernel: Option<String>,
    /// Ticks per second.
    pub hz: Option<u32>,
    /// Programs are interrupted at one in so many calls; 0: never.
    pub interleave: Option<u32>,
    /// A vCPU spins for so long before it exits.
    pub window_us: Option<f64>,
    /// What an exit costs the vCPU.
    pub exit_us: Option<f64>,
    /// What a switch costs the task that comes.
    pub switch_us: Option<f64>,
    /// Variables of the scheduler.
    pub set: BTreeMap<String, u64>,
    /// Nobody may wait for longer; 0: not checked.
    pub wait_ms: Option<f64>,
    /// No CPU may idle beside a waiting task for longer; 0: not checked.
    pub idle_ms: Option<f64>,
    /// Shares may differ from what is due by so much; not checked if absent.
    pub share_percent: Option<f64>,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    /// Runs whenever it may.
    Hog,
    /// Runs for `run_us`, sleeps for `sleep_us`, both varied by a half.
    Sleeper,
    /// Runs for `run_us`, woken every `sleep_us` with all others of that period.
    Periodic,
    /// A sleeper of a higher class, bound to one CPU.
    RealTime,
}

/// A `[[task]]`, or several alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Name; a number is appended where `count` exceeds 1.
    pub name: String,
    /// How many of these.
    #[serde(default = "one")]
    pub count: u32,
    /// What it does.
    pub does: Does,
    /// CPU time between two sleeps.
    #[serde(default = "run_us")]
    pub run_us: f64,
    /// Time of a sleep, or period.
    #[serde(default = "sleep_us")]
    pub sleep_us: f64,
    /// 100 is nice 0.
    #[serde(default = "hundred")]
    pub weight: u32,
    /// `SCHED_IDLE`.
    #[serde(default)]
    pub idle: bool,
    /// CPUs that it may use; all if absent.
    pub cpus: Option<String>,
    /// The nth of them may use the nth CPU of `cpus` alone.
    #[serde(default)]
    pub bound: bool,
    /// A `[[group]]`; the root if absent.
    pub group: Option<String>,
    /// When it begins.
    #[serde(default)]
    pub begin_ms: f64,
    /// When it ends, if it does.
    pub end_ms: Option<f64>,
}

/// A `[[group]]`: a cgroup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Name, for `group` and `parent`.
    pub name: String,
    /// A group above; the root if absent.
    pub parent: Option<String>,
    /// `cpu.weight`.
    #[serde(default = "hundred")]
    pub weight: u32,
    /// CPUs that it may use at most (`cpu.max` over 100 ms).
    pub max: Option<f64>,
}

/// A `[[change]]` of a task, a VM's vCPUs or a group, at a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSpec {
    /// When.
    pub at_ms: f64,
    /// Of this task; all of a `[[task]]` if that has a `count`.
    pub task: Option<String>,
    /// Of all vCPUs of this VM.
    pub vm: Option<String>,
    /// Of this group.
    pub group: Option<String>,
    /// A new weight.
    pub weight: Option<u32>,
    /// CPUs that may be used from now on.
    pub cpus: Option<String>,
    /// A new `cpu.max` of the group, in CPUs; 0: none.
    pub max: Option<f64>,
    /// Into this group.
    pub move_to: Option<String>,
    /// It ends.
    pub end: bool,
}

/// For how long a vCPU halts that a timer wakes, µs, unless a VM says.
pub const HALT_US: f64 = 1000.0;

/// Why the vCPUs of a VM that computes halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Halts {
    /// For a while, after every piece of work.
    Timer,
    /// Until the neighbour's IPI comes, after having sent one.
    Message,
}

fn one() -> u32 {
    1
}

fn hundred() -> u32 {
    100
}

fn run_us() -> f64 {
    100.0
}

fn sleep_us() -> f64 {
    1000.0
}

/// Names of `count` things called `name`.
pub fn names(name: &str, count: u32) -> impl Iterator<Item = String> + '_ {
    (1..=count).map(move |i| if count == 1 { name.to_string() } else { format!("{name}{i}") })
}

impl Scenario {
    /// What is wrong with the tables that are the tunnel's alone.
    pub(super) fn check_tunnel(&self) -> Result<(), Mistake> {
        let Some(tunnel) = &self.tunnel else { return self.check_no_tunnel() };
        tunnel.check().map_err(|(keys, what)| (prefixed_table("tunnel", keys), what))?;
        if self.guest.is_some() || self.linux.is_some() {
            let table = if self.guest.is_some() { "guest" } else { "linux" };
            return mistake(&[table], format!("[{table}] is the lab's: leave it or [tunnel] out"));
        }
        for (i, group) in self.groups.iter().enumerate() {
            self.check_group(i, group).map_err(|(keys, what)| (prefixed("group", i, keys), what))?;
        }
        for (i, task) in self.tasks.iter().enumerate() {
            self.check_task(task).map_err(|(keys, what)| (prefixed("task", i, keys), what))?;
        }
        for (i, vm) in self.vms.iter().enumerate() {
            self.check_tunnel_vm(vm).map_err(|(keys, what)| (prefixed("vm", i, keys), what))?;
        }
        for (i, change) in self.changes.iter().enumerate() {
            self.check_change(change).map_err(|(keys, what)| (prefixed("change", i, keys), what))?;
        }
        Ok(())
    }

    fn check_no_tunnel(&self) -> Result<(), Mistake> {
        let tables =
            [("task", self.tasks.len()), ("group", self.groups.len()), ("change", self.changes.len())];
        if let Some((table, _)) = tables.iter().find(|(_, n)| *n > 0) {
            return mistake(&[table], format!("[[{table}]] is the wind tunnel's: add a [tunnel] table"));
        }
        for (i, vm) in self.vms.iter().enumerate() {
            let keys = [
                ("group", vm.group.is_some()),
                ("cpus", vm.cpus.is_some()),
                ("halts", vm.halts == Some(Halts::Message)),
                ("pv_eoi", vm.pv_eoi),
                ("begin_ms", vm.begin_ms > 0.0),
            ];
            if let Some((key, _)) = keys.iter().find(|(_, given)| *given) {
                let what = match *key {
                    "halts" => {
                        "only the wind tunnel's vCPUs halt until a message comes: add a [tunnel] table".into()
                    }
                    key => format!("`{key}` is the wind tunnel's: add a [tunnel] table"),
                };
                return Err((prefixed("vm", i, vec![Key::Name(key)]), what));
            }
        }
        Ok(())
    }

    fn check_group_name(&self, key: &'static str, name: Option<&String>) -> Result<(), Mistake> {
        match name.filter(|name| !self.groups.iter().any(|group| group.name == **name)) {
            Some(name) => mistake(&[key], format!("there is no [[group]] called {name:?}")),
            None => Ok(()),
        }
    }

    fn check_cpus(&self, list: Option<&String>) -> Result<(), Mistake> {
        let Some(list) = list else { return Ok(()) };
        let there = |number: &str| number.parse::<u32>().is_ok_and(|cpu| cpu < self.host.cpus);
        if list.split([',', '-']).all(there) && parse_cpus(list).is_ok_and(|cpus| !cpus.is_empty()) {
            return Ok(());
        }
        let last = self.host.cpus - 1;
        mistake(&["cpus"], format!("{list:?} is no list of CPUs 0 to {last}, such as \"0-3,7\""))
    }

    fn check_group(&self, nth: usize, group: &GroupSpec) -> Result<(), Mistake> {
        check_name(&group.name).map_err(|what| (vec![Key::Name("name")], what))?;
        if self.groups[..nth].iter().any(|other| other.name == group.name) {
            return mistake(&["name"], format!("there are two groups called {}", group.name));
        }
        if let Some(parent) = &group.parent
            && !self.groups[..nth].iter().any(|other| other.name == *parent)
        {
            return mistake(&["parent"], format!("there is no [[group]] called {parent:?} above this one"));
        }
        range(&["weight"], group.weight, 1, 10_000)?;
        range(&["max"], group.max.unwrap_or(1.0), 0.01, 1024.0)
    }

    fn check_task(&self, task: &TaskSpec) -> Result<(), Mistake> {
        check_name(&task.name).map_err(|what| (vec![Key::Name("name")], what))?;
        if self.tasks.iter().filter(|other| other.name == task.name).count() > 1 {
            return mistake(&["name"], format!("there are two [[task]] called {}", task.name));
        }
        // A number behind a name is for `count`.
        let numbered = |name: &str| {
            name.strip_prefix(task.name.as_str())
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        let tasks = self.tasks.iter().map(|other| other.name.clone());
        if let Some(other) = tasks.chain(self.each_vm().map(|(name, _)| name)).find(|other| numbered(other)) {
            let what = format!("{other} would be one of {}: name it otherwise", task.name);
            return mistake(&["name"], what);
        }
        range(&["count"], task.count, 1, 10_000)?;
        range(&["run_us"], task.run_us, 1.0, 1e7)?;
        range(&["sleep_us"], task.sleep_us, 1.0, 1e7)?;
        range(&["weight"], task.weight, 1, 10_000)?;
        range(&["begin_ms"], task.begin_ms, 0.0, 3.6e6)?;
        self.check_cpus(task.cpus.as_ref())?;
        self.check_group_name("group", task.group.as_ref())?;
        if (task.bound || task.does == Does::RealTime) && task.cpus.is_none() {
            let whose = if task.bound { "a bound task" } else { "a real-time task" };
            let what = format!("{whose} needs `cpus`: the nth of them is bound to the nth CPU");
            return mistake(&["name"], what);
        }
        let cpus =
            |task: &TaskSpec| task.cpus.as_deref().and_then(|list| parse_cpus(list).ok()).unwrap_or_default();
        if task.does == Does::RealTime {
            let (own, count) = (cpus(task), task.count as usize);
            let others =
                self.tasks.iter().filter(|other| other.does == Does::RealTime && other.name != task.name);
            if count > own.len() || others.flat_map(cpus).any(|cpu| own.contains(&cpu)) {
                let what = "a CPU has one real-time task at most: give them `cpus` of their own".into();
                return mistake(&["name"], what);
            }
        }
        match task.end_ms {
            Some(end) if end <= task.begin_ms => mistake(&["end_ms"], "it ends before it begins".into()),
            _ => Ok(()),
        }
    }

    fn check_tunnel_vm(&self, vm: &Vm) -> Result<(), Mistake> {
        self.check_cpus(vm.cpus.as_ref())?;
        self.check_group_name("group", vm.group.as_ref())?;
        range(&["begin_ms"], vm.begin_ms, 0.0, 3.6e6)?;
        Ok(())
    }

    fn check_change(&self, change: &ChangeSpec) -> Result<(), Mistake> {
        range(&["at_ms"], change.at_ms, 0.0, 3.6e6)?;
        let subjects = [change.task.is_some(), change.vm.is_some(), change.group.is_some()];
        if subjects.iter().filter(|given| **given).count() != 1 {
            return mistake(&["at_ms"], "a change is of one of `task`, `vm` and `group`".into());
        }
        if let Some(name) = &change.task
            && !self.each_task().any(|(own, task)| own == *name || task.name == *name)
        {
            return mistake(&["task"], format!("there is no [[task]] called {name:?}"));
        }
        if let Some(name) = &change.vm
            && !self.each_vm().any(|(own, _)| own == *name)
        {
            return mistake(&["vm"], format!("there is no VM called {name:?}"));
        }
        let is_changed =
            |(own, task): &(String, &TaskSpec)| [own, &task.name].map(Some).contains(&change.task.as_ref());
        let tasks = self.each_task().filter(is_changed);
        let vms = self.each_vm().filter(|(own, _)| change.vm.as_ref() == Some(own));
        let begin_ms =
            tasks.map(|(_, task)| task.begin_ms).chain(vms.map(|(_, vm)| vm.begin_ms)).fold(0.0, f64::max);
        if begin_ms > 0.0 && change.at_ms <= begin_ms {
            return mistake(&["at_ms"], format!("whom it changes begins at {begin_ms} ms: change it later"));
        }
        self.check_group_name("group", change.group.as_ref())?;
        self.check_group_name("move_to", change.move_to.as_ref())?;
        self.check_cpus(change.cpus.as_ref())?;
        range(&["weight"], change.weight.unwrap_or(1), 1, 10_000)?;
        range(&["max"], change.max.unwrap_or(0.0), 0.0, 1024.0)?;
        if !change.end && self.each_task().filter(is_changed).any(|(_, task)| task.does == Does::RealTime) {
            return mistake(&["task"], "a real-time task can only end".into());
        }
        let (of_group, of_task) = (change.group.is_some(), change.group.is_none());
        let actions = [
            ("weight", change.weight.is_some(), change.vm.is_none()),
            ("cpus", change.cpus.is_some(), of_task),
            ("max", change.max.is_some(), of_group),
            ("move_to", change.move_to.is_some(), of_task),
            ("end", change.end, of_task),
        ];
        if let Some((key, ..)) = actions.iter().find(|(_, given, fits)| *given && !fits) {
            return mistake(&[key], format!("`{key}` does not go with this subject"));
        }
        match actions.iter().filter(|(_, given, _)| *given).count() {
            1 => Ok(()),
            _ => mistake(
                &["at_ms"],
                "a change needs one of `weight`, `cpus`, `max`, `move_to` and `end`".into(),
            ),
        }
    }

    /// Every task beside VMs, `count` resolved.
    pub fn each_task(&self) -> impl Iterator<Item = (String, &TaskSpec)> {
        self.tasks.iter().flat_map(|task| names(&task.name, task.count).map(move |name| (name, task)))
    }
}

impl TunnelSpec {
    /// The kernel's version as (major, minor), if it is named and can be read.
    pub fn version(&self) -> Option<(i32, i32)> {
        let (major, minor) = self.kernel.as_ref()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    fn check(&self) -> Result<(), Mistake> {
        if let Some(kernel) = &self.kernel
            && !matches!(self.version(), Some((6, 18..=19) | (7, 0..=2)))
        {
            return mistake(
                &["kernel"],
                format!("{kernel:?} is no kernel that is modelled: \"6.18\" to \"7.2\""),
            );
        }
        range(&["hz"], self.hz.unwrap_or(250), 24, 10_000)?;
        let times = [
            ("window_us", self.window_us),
            ("exit_us", self.exit_us),
            ("switch_us", self.switch_us),
            ("wait_ms", self.wait_ms),
            ("idle_ms", self.idle_ms),
        ];
        for (key, value) in times {
            range(&[key], value.unwrap_or(1.0), 0.0, 1e6)?;
        }
        range(&["share_percent"], self.share_percent.unwrap_or(1.0), 0.0, 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const GOOD: &str = "title = \"t\"\n[tunnel]\n[host]\ncpus = 256\nllcs = 4\n[[task]]\nname = \"hog\"\ncount = 2\ndoes = \"hog\"\n";

    #[test]
    fn mistakes_of_tunnel_tables_come_with_their_line() {
        assert_eq!(Scenario::parse(GOOD, Path::new("x")).unwrap().each_task().count(), 2);
        let cases = [
            (GOOD.replace("256", "1025"), "x:4: cpus = 1025 is out of range: 1 to 1024"),
            (GOOD.replace("[tunnel]\n", "\n"), "x:4: cpus = 256 is out of range: 1 to 16"),
            (GOOD.replace("[tunnel]", "").replace("256", "4"), "x:6: [[task]] is the wind tunnel's"),
            (format!("{GOOD}group = \"pods\"\n"), "x:10: there is no [[group]] called \"pods\""),
            (format!("{GOOD}cpus = \"256\"\n"), "x:10: \"256\" is no list of CPUs 0 to 255"),
            (format!("{GOOD}bound = true\n"), "x:7: a bound task needs `cpus`"),
            (
                GOOD.replace("\"hog\"\n", "\"real-time\"\n")
                    .replace("name = \"real-time\"", "name = \"hog\""),
                "x:7: a real-time task needs",
            ),
            (
                format!("{GOOD}[[group]]\nname = \"g\"\n[[change]]\nat_ms = 1\ngroup = \"g\"\nmax = -3.0\n"),
                "x:15: max = -3 is out of range",
            ),
            (
                format!("{GOOD}[[change]]\nat_ms = 1\ntask = \"hog3\"\nend = true\n"),
                "x:12: there is no [[task]]",
            ),
            (format!("{GOOD}[[change]]\nat_ms = 1\ntask = \"hog\"\n"), "x:11: a change needs one of"),
            (
                format!("{GOOD}begin_ms = 5\n[[change]]\nat_ms = 5\ntask = \"hog2\"\nend = true\n"),
                "x:12: whom it changes begins at 5 ms",
            ),
            (
                format!("{GOOD}[[task]]\nname = \"hog2\"\ndoes = \"hog\"\n"),
                "x:7: hog2 would be one of hog: name it otherwise",
            ),
            (
                format!("{GOOD}[[task]]\nname = \"rt\"\ncount = 2\ndoes = \"real-time\"\ncpus = \"0\"\n"),
                "x:11: a CPU has one real-time task at most",
            ),
            (
                format!(
                    "{GOOD}[[task]]\nname = \"rt\"\ndoes = \"real-time\"\ncpus = \"0\"\n[[change]]\nat_ms = 1\ntask = \"rt\"\nweight = 5\n"
                ),
                "x:16: a real-time task can only end",
            ),
            (GOOD.replace("[tunnel]", "[tunnel]\nkernel = \"7.9\""), "x:3: \"7.9\" is no kernel"),
            (GOOD.replace("[tunnel]", "[tunnel]\nkernel = \"5.4\""), "x:3: \"5.4\" is no kernel"),
        ];
        for (text, expected) in cases {
            let got = Scenario::parse(&text, Path::new("x")).unwrap_err().to_string();
            assert!(got.starts_with(expected), "{got:?} should start with {expected:?}");
        }
    }
}
