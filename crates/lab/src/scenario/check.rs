// SPDX-License-Identifier: GPL-2.0-only
//! What makes a scenario wrong, and where in its file that stands.

use super::linux::MOST_HOST_MB;
use super::{Cgroups, Halts, Placement, Scenario, Variant, Vm, program};
use crate::machine::describe::parse_cpus;
use crate::machine::switches::{self, GOVERNOR, SWITCHES};
use overbook_vmm::Pattern;
use std::collections::{BTreeMap, BTreeSet};

impl Scenario {
    /// Everything that can be wrong with a file.
    pub(super) fn check(&self) -> Result<(), Mistake> {
        let host = &self.host;
        let (most_cpus, most_threads) = if self.tunnel.is_some() { (1024, 8) } else { (16, 2) };
        range(&["host", "cpus"], host.cpus, 1, most_cpus)?;
        range(&["host", "smt"], host.smt, 1, most_threads)?;
        // Before anybody counts them, or names each.
        let most_alike = if self.tunnel.is_some() { 4096 } else { 64 };
        for (i, vm) in self.vms.iter().enumerate() {
            range(&["count"], vm.count, 1, most_alike)
                .map_err(|(keys, what)| (prefixed("vm", i, keys), what))?;
        }
        if self.linux.is_none() {
            range(&["host", "memory_mb"], host.memory_mb(), 512, MOST_HOST_MB)?;
        }
        range(&["host", "shift"], host.shift, 0, 6)?;
        range(&["host", "turn_us"], host.turn_us(), 1, 10_000)?;
        range(&["host", "dilation"], host.dilation, 0.1, 100.0)?;
        if host.llcs == 0 || !host.cpus.is_multiple_of(host.llcs.saturating_mul(host.smt)) {
            return mistake(
                &["host", "llcs"],
                format!(
                    "{} CPUs do not divide into {} LLCs of {}-thread cores",
                    host.cpus, host.llcs, host.smt
                ),
            );
        }
        if host.nodes == 0 || !host.llcs.is_multiple_of(host.nodes) {
            let what = format!(
                "{} LLCs do not divide into {} NUMA nodes: raise llcs or lower nodes",
                host.llcs, host.nodes
            );
            return mistake(&["host", "nodes"], what);
        }
        self.check_experiment()
    }

    /// How far Linux guests can be stretched.
    fn check_stretch(&self) -> Result<(), Mistake> {
        let dilation = self.host.dilation;
        if dilation.fract() != 0.0 || !(1.0..=64.0).contains(&dilation) {
            let what = format!("{dilation} cannot stretch a Linux guest: give a whole number from 1 to 64");
            return mistake(&["host", "dilation"], what);
        }
        Ok(())
    }

    /// What can be wrong on any host.
    pub(super) fn check_experiment(&self) -> Result<(), Mistake> {
        range(&["measure", "seconds"], self.measure.seconds, 0.05, 3600.0)?;
        range(&["measure", "settle_seconds"], self.measure.settle_seconds, 0.0, 600.0)?;
        range(&["measure", "repetitions"], self.measure.repetitions, 1, 1000)?;
        if self.seed > i64::MAX as u64 {
            return mistake(&["seed"], "seed must be below 2^63".into());
        }
        self.check_layout()?;
        self.check_tunnel()?;
        if let Some(guest) = &self.guest {
            guest.check(self.vms.len())?;
        }
        if let Some(linux) = &self.linux {
            linux.check(&self.host, self.vms.len())?;
            self.check_stretch()?;
        }
        if self.guest.is_some() && self.linux.is_some() {
            return mistake(
                &["linux"],
                "a machine that is a guest runs no guests: leave [guest] or [linux] out".into(),
            );
        }
        if self.vms.is_empty() && self.tasks.is_empty() && self.guest.is_none() && self.linux.is_none() {
            return mistake(&["vm"], "there is no VM: add a [[vm]] table".into());
        }
        for (i, vm) in self.vms.iter().enumerate() {
            self.check_vm(vm).map_err(|(keys, what)| (prefixed("vm", i, keys), what))?;
        }
        let mut names = BTreeSet::new();
        if let Some((twin, _)) = self.each_vm().find(|(name, _)| !names.insert(name.clone())) {
            return mistake(&["vm"], format!("there are two VMs called {twin:?}: give one another name"));
        }
        let most = if self.tunnel.is_some() { 16_384 } else { 1024 };
        if self.vms.iter().map(|vm| u64::from(vm.count) * u64::from(vm.vcpus)).sum::<u64>() > most {
            return mistake(&["vm"], format!("more than {most} vCPUs in all would not end in a lifetime"));
        }
        for (i, variant) in self.variants.iter().enumerate() {
            let twin = self.variants[..i].iter().any(|v| v.name == variant.name);
            self.check_variant(variant, twin).map_err(|(keys, what)| (prefixed("variant", i, keys), what))?;
        }
        if self.variants.is_empty() {
            return mistake(
                &["variant"],
                "there is no variant: leave the key out to measure EEVDF alone".into(),
            );
        }
        Ok(())
    }

    fn check_layout(&self) -> Result<(), Mistake> {
        let layout = &self.layout;
        let placed = layout.placement != Placement::Free || layout.pool.is_some();
        if placed && (self.linux.is_some() || self.guest.is_some()) {
            return mistake(
                &["layout", "placement"],
                "only micro-guests, [[vm]], are placed: leave it out".into(),
            );
        }
        if layout.cgroups != Cgroups::Flat && self.guest.is_some() {
            let what = "a machine that is a guest runs no VMs that could have groups: leave it out".into();
            return mistake(&["layout", "cgroups"], what);
        }
        match (self.layout.placement, self.layout.pool) {
            (Placement::Pooled, None) => {
                mistake(&["layout", "placement"], "pooled placement needs `pool`, the CPUs of each VM".into())
            }
            (Placement::Pooled, Some(pool)) => {
                range(&["layout", "pool"], pool, 1, self.host.cpus)?;
                let (cpus, vms) = (self.host.cpus, self.vms.iter().map(|vm| vm.count).sum::<u32>());
                if self.tunnel.is_none() && !cpus.is_multiple_of(pool) && vms.saturating_mul(pool) > cpus {
                    let what =
                        format!("pools of {pool} CPUs of {cpus} overlap: choose one that divides them");
                    return mistake(&["layout", "pool"], what);
                }
                Ok(())
            }
            (_, Some(_)) => mistake(&["layout", "pool"], "`pool` goes with placement = \"pooled\"".into()),
            _ => Ok(()),
        }
    }

    fn check_vm(&self, vm: &Vm) -> Result<(), Mistake> {
        range(&["vcpus"], vm.vcpus, vm.pattern.min_vcpus(), 256)?;
        if vm.pattern.is_paired() && !vm.vcpus.is_multiple_of(2) {
            let what = format!("{} pairs its vCPUs, so vcpus must be even", vm.pattern.name());
            return mistake(&["vcpus"], what);
        }
        for (key, value) in [("critical_us", vm.critical_us), ("outside_us", vm.outside_us)] {
            range(&[key], value.unwrap_or(0.0), 0.0, 1e7)?;
        }
        range(&["jitter_percent"], vm.jitter_percent.unwrap_or(0), 0, 100)?;
        if let Some(targets) = vm.targets {
            range(&["targets"], targets, 0, vm.vcpus - 1)?;
        }
        if vm.storms.as_ref().is_some_and(Vec::is_empty) {
            return mistake(&["storms"], "a hostile guest without a storm does nothing: name one".into());
        }
        let only = |key: &'static str, given: bool, patterns: &[Pattern]| {
            if !given || patterns.contains(&vm.pattern) {
                return Ok(());
            }
            mistake(&[key], format!("`{key}` means nothing to pattern {}", vm.pattern.name()))
        };
        only("lock", vm.lock.is_some(), &[Pattern::Lock])?;
        only("targets", vm.targets.is_some(), &[Pattern::Shootdown])?;
        only("storms", vm.storms.is_some(), &[Pattern::Hostile])?;
        only("halts", vm.halts.is_some(), &[Pattern::Compute])?;
        let mut critical = Pattern::ALL.to_vec();
        critical.retain(|p| ![Pattern::Barrier, Pattern::Compute, Pattern::Hostile].contains(p));
        only("critical_us", vm.critical_us.is_some(), &critical)?;
        if vm.jitter_percent.is_some() && vm.pattern == Pattern::Compute && vm.halts.is_none() {
            let what = "`jitter_percent` means nothing to pattern compute unless it `halts`".into();
            return mistake(&["jitter_percent"], what);
        }
        // Where hosts are stretched, so are halts, and a guest's timer goes no further.
        let longest = if self.tunnel.is_some() { 1e6 } else { 1e6 / self.host.dilation.max(1.0) };
        range(&["halt_us"], vm.halt_us.unwrap_or(1.0), 1.0, longest)?;
        if vm.halt_us.is_some() && vm.halts != Some(Halts::Timer) {
            return mistake(&["halt_us"], "`halt_us` goes with halts = \"timer\"".into());
        }
        if let Some(weight) = vm.weight {
            range(&["weight"], weight, 1, 10_000)?;
            if self.layout.cgroups == Cgroups::Flat {
                let what = "a weight needs a group: set [layout] cgroups to another than \"flat\"".into();
                return mistake(&["weight"], what);
            }
        }
        if let Some(name) = &vm.name {
            check_name(name).map_err(|what| (vec![Key::Name("name")], what))?;
        }
        Ok(())
    }

    fn check_variant(&self, variant: &Variant, twin: bool) -> Result<(), Mistake> {
        check_name(&variant.name).map_err(|what| (vec![Key::Name("name")], what))?;
        if twin {
            return mistake(&["name"], format!("there are two variants called {}", variant.name));
        }
        if let Some(slice) = variant.base_slice_us {
            range(&["base_slice_us"], slice, 100.0, 1e6)?;
            if variant.overbook.is_some() || variant.scheduler.is_some() {
                return mistake(
                    &["base_slice_us"],
                    "EEVDF's slice means nothing to another scheduler: leave it out".into(),
                );
            }
        }
        if !variant.ple && (self.guest.is_some() || self.linux.is_some()) {
            return mistake(
                &["ple"],
                "only micro-guests, [[vm]], have their PAUSE exits switched off: leave it out".into(),
            );
        }
        match (&self.guest, &variant.guest, &variant.overbook) {
            (Some(_), _, Some(_)) => {
                return mistake(
                    &["overbook"],
                    "a machine that is a guest takes `guest` and not `overbook`".into(),
                );
            }
            (None, Some(_), _) if self.linux.is_none() => {
                return mistake(
                    &["guest"],
                    "`guest` needs a [guest] or [linux] table: this machine is a host of micro-guests".into(),
                );
            }
            _ => {}
        }
        if let Some(words) = &variant.scheduler {
            self.check_scheduler(variant, words)?;
        }
        match (&self.linux, variant.cooperate) {
            (Some(_), Some(_)) if variant.guest.is_none() && variant.governor.is_none() => {
                let what = "`cooperate` says in how many guests something packs: add `guest` or `governor`";
                return mistake(&["cooperate"], what.into());
            }
            (Some(linux), Some(n)) => range(&["cooperate"], n, 1, linux.guests)?,
            (None, Some(_)) => return mistake(&["cooperate"], "`cooperate` needs a [linux] table".into()),
            _ => {}
        }
        if let Some(parameters) = &variant.governor {
            self.check_governor(variant, parameters).map_err(|what| (vec![Key::Name("governor")], what))?;
        }
        for feature in &variant.features {
            check_feature(feature).map_err(|what| (vec![Key::Name("features")], what))?;
        }
        for (name, value) in &variant.kernel {
            check_switch(name, *value).map_err(|what| (vec![Key::Name("kernel")], what))?;
        }
        if let Some(list) = &variant.preferred {
            check_preferred(list, self.host.cpus).map_err(|what| (vec![Key::Name("preferred")], what))?;
        }
        Ok(())
    }

    fn check_governor(&self, variant: &Variant, parameters: &BTreeMap<String, u64>) -> Result<(), String> {
        if self.linux.is_none() {
            return Err("`governor` needs a [linux] table".into());
        }
        if variant.guest.is_some() {
            return Err("one of them packs a guest: leave `governor` or `guest` out".into());
        }
        if self.guest_weight() > 1 {
            return Err("a stretched guest's kernel is told wrong steal times: set dilation = 1".into());
        }
        for (name, value) in parameters {
            let Some((_, least, most)) = GOVERNOR.iter().find(|(known, _, _)| known == name) else {
                return Err(format!("{name:?} is no parameter: there are interval_ms, low, high"));
            };
            if !(*least..=*most).contains(value) {
                return Err(format!("{name} = {value} is out of range: {least} to {most}"));
            }
        }
        Ok(())
    }

    fn check_scheduler(&self, variant: &Variant, words: &[String]) -> Result<(), Mistake> {
        let wrong = |what: &str| mistake(&["scheduler"], what.into());
        if variant.overbook.is_some() {
            return wrong("one host has one scheduler: leave `scheduler` or `overbook` out");
        }
        if self.guest.is_some() || self.tunnel.is_some() {
            return wrong("schedulers of others are measured on an emulated host: use [[vm]] or [linux]");
        }
        if words.first().is_none_or(|name| name.is_empty()) {
            return wrong("name a program, and then its arguments: [\"scx_lavd\", \"--performance\"]");
        }
        // The machine has one folder for programs, its own among them.
        let file = program(&words[0]);
        if OURS.contains(&file) {
            return wrong(&format!(
                "the machine has a program {file} of its own: give this one another name"
            ));
        }
        if let Some(other) = self.rivals().find(|other| *other != words[0] && program(other) == file) {
            return wrong(&format!("{other} and {} have one name: give one of them another", words[0]));
        }
        if let Some(word) = words.iter().find(|word| number_to_stretch(word).is_some_and(|n| n.is_err())) {
            return mistake(&["scheduler"], format!("{word:?} is no number to stretch: write \"@20000\""));
        }
        Ok(())
    }
}

/// Programs that a machine of the lab has besides.
const OURS: [&str; 2] = ["overbook", overbook_kernels::emulator::PROGRAM];

/// The kernel's own scheduler's features, of 6.18 and 7.2 together (kernel/sched/features.h).
const FEATURES: [&str; 29] = [
    "PLACE_LAG",
    "PLACE_DEADLINE_INITIAL",
    "PLACE_REL_DEADLINE",
    "RUN_TO_PARITY",
    "PREEMPT_SHORT",
    "NEXT_BUDDY",
    "PICK_BUDDY",
    "CACHE_HOT_BUDDY",
    "DELAY_DEQUEUE",
    "DELAY_ZERO",
    "PARANOID_AVG",
    "WAKEUP_PREEMPTION",
    "HRTICK",
    "HRTICK_DL",
    "NONTASK_CAPACITY",
    "TTWU_QUEUE",
    "SIS_UTIL",
    "WARN_DOUBLE_CLOCK",
    "RT_PUSH_IPI",
    "RT_RUNTIME_SHARE",
    "LB_MIN",
    "ATTACH_AGE_LOAD",
    "WA_IDLE",
    "WA_WEIGHT",
    "WA_BIAS",
    "UTIL_EST",
    "LATENCY_WARN",
    "NI_RANDOM",
    "NI_RATE",
];

/// A feature that no kernel has would be found out only after the first boot.
fn check_feature(feature: &str) -> Result<(), String> {
    let name = feature.strip_prefix("NO_").unwrap_or(feature);
    if FEATURES.contains(&name) {
        return Ok(());
    }
    Err(format!("{feature:?} is no scheduler feature{}", like(name)))
}

/// As [`check_feature`], of the kernel series.
fn check_switch(name: &str, value: u64) -> Result<(), String> {
    let Some(switch) = switches::find(name) else {
        let all: Vec<&str> = SWITCHES.iter().map(|switch| switch.name).collect();
        return Err(format!("{name:?} is no switch of the kernel series, which has {}", all.join(", ")));
    };
    if value > switch.most {
        return Err(format!("{name} is {value}: use 0 to {}", switch.most));
    }
    Ok(())
}

/// The kernel takes a list of preferred CPUs only if it leaves some out.
fn check_preferred(list: &str, cpus: u32) -> Result<(), String> {
    let chosen = parse_cpus(list).unwrap_or_default();
    if chosen.is_empty()
        || (0..cpus).all(|cpu| chosen.contains(&cpu))
        || chosen.iter().any(|cpu| *cpu >= cpus)
    {
        return Err(format!(
            "{list:?} does not name some of the {cpus} CPUs and leave others out: write \"0-1\""
        ));
    }
    Ok(())
}

/// The feature that was meant, or where all of them stand.
fn like(name: &str) -> String {
    match FEATURES.iter().find(|feature| strsim::jaro_winkler(feature, name) > 0.9) {
        Some(feature) => format!("; did you mean {feature}?"),
        None => {
            ": /sys/kernel/debug/sched/features of a kernel lists its own, some with NO_ before them".into()
        }
    }
}

/// The number in a word that means one times the dilation.
pub(super) fn number_to_stretch(word: &str) -> Option<Result<u64, std::num::ParseIntError>> {
    word.strip_prefix('@').map(str::parse)
}

/// Names end up in file names, cgroups and table headings.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.+".contains(&b);
    if name.is_empty() || name.len() > 32 || !name.bytes().all(fine) {
        return Err(format!("{name:?} is no name: use 1 to 32 letters, digits, or -_.+"));
    }
    Ok(())
}

/// A step on the way to a value.
pub(super) enum Key {
    Name(&'static str),
    Nth(usize),
}

/// The way to the wrong value, and what is wrong with it.
pub(super) type Mistake = (Vec<Key>, String);

pub(super) fn mistake<T>(keys: &[&'static str], what: String) -> Result<T, Mistake> {
    Err((keys.iter().map(|key| Key::Name(key)).collect(), what))
}

pub(super) fn prefixed_table(table: &'static str, keys: Vec<Key>) -> Vec<Key> {
    std::iter::once(Key::Name(table)).chain(keys).collect()
}

pub(super) fn prefixed(table: &'static str, nth: usize, keys: Vec<Key>) -> Vec<Key> {
    [Key::Name(table), Key::Nth(nth)].into_iter().chain(keys).collect()
}

pub(super) fn range<T: PartialOrd + std::fmt::Display>(
    keys: &[&'static str],
    value: T,
    low: T,
    high: T,
) -> Result<(), Mistake> {
    if value >= low && value <= high {
        return Ok(());
    }
    let key = keys[keys.len() - 1];
    mistake(keys, format!("{key} = {value} is out of range: {low} to {high}"))
}

/// Where in the text the deepest key of the path that is really there stands.
pub(super) fn offset_of(text: &str, keys: &[Key]) -> usize {
    let Ok(document) = toml_edit::Document::parse(text) else { return 0 };
    let (mut item, mut offset) = (document.as_item(), 0);
    for key in keys {
        let next = match key {
            Key::Name(name) => item.get(name),
            Key::Nth(nth) => item.get(nth),
        };
        let Some(found) = next else { break };
        item = found;
        offset = item.span().map_or(offset, |span| span.start);
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const GOOD: &str = "title = \"t\"\n[host]\ncpus = 4\n[[vm]]\ncount = 2\nvcpus = 4\npattern = \"lock\"\n";

    const LINUX: &str = "title = \"t\"\n[host]\ncpus = 4\nmemory_mb = 4096\n[linux]\npackages = []\ncpus = 2\ncommand = [\"x\"]";

    fn complaint(text: &str) -> String {
        Scenario::parse(text, Path::new("x.toml")).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_come_with_their_line() {
        let cases = [
            (GOOD.replace("cpus = 4\n[[", "cpus = 17\n[["), "x.toml:3: cpus = 17 is out of range: 1 to 16"),
            (GOOD.replace("vcpus = 4", "vcpus = 0"), "x.toml:6: vcpus = 0 is out of range"),
            (
                GOOD.replace("cpus = 4\n[[", "cpus = 4\nsmt = 2\nllcs = 2147483649\n[["),
                "x.toml:5: 4 CPUs do not divide",
            ),
            (GOOD.replace("count = 2", "count = 4000000000"), "x.toml:5: count = 4000000000 is out of range"),
            (GOOD.replace("count", "cuont"), "x.toml:5: unknown field `cuont`"),
            (GOOD.replace("\"lock\"", "\"lokc\""), "x.toml:7: unknown variant `lokc`"),
            (GOOD.replace("title = \"t\"", "title = "), "x.toml:1: "),
            (format!("{GOOD}weight = 5\n"), "x.toml:8: a weight needs a group"),
            (
                format!("{GOOD}name = \"a\"\n[[vm]]\nname = \"a2\"\nvcpus = 1\npattern = \"lock\"\n"),
                "x.toml:4: there are two VMs called \"a2\"",
            ),
            (format!("{GOOD}storms = [\"ipi\"]\n"), "x.toml:8: `storms` means nothing to pattern lock"),
            (
                GOOD.replace("\"lock\"", "\"barrier\"") + "critical_us = 50\n",
                "x.toml:8: `critical_us` means nothing to pattern barrier",
            ),
            (
                GOOD.replace("\"lock\"", "\"compute\"") + "jitter_percent = 50\n",
                "x.toml:8: `jitter_percent` means nothing to pattern compute unless",
            ),
            (
                format!("{LINUX}\n[layout]\nplacement = \"pinned\"\n"),
                "x.toml:10: only micro-guests, [[vm]], are placed",
            ),
            (
                LINUX.replace("memory_mb = 4096\n[linux]", "[linux]\nguests = 4\nmemory_mb = 4096"),
                "x.toml:6: 4 guests of 4096 MB need a host of 17920 MB",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\noverbook = []\nbase_slice_us = 3000.0\n"),
                "x.toml:11: EEVDF's slice means nothing",
            ),
            (format!("{GOOD}[layout]\npool = 2\n"), "x.toml:9: `pool` goes with"),
            (format!("{GOOD}[layout]\nplacement = \"pooled\"\n"), "x.toml:9: pooled placement needs"),
            (
                format!("{GOOD}[layout]\nplacement = \"pooled\"\npool = 3\n"),
                "x.toml:10: pools of 3 CPUs of 4 overlap",
            ),
            (format!("{LINUX}\n[[variant]]\nname = \"a\"\nple = false\n"), "x.toml:11: only micro-guests"),
            (
                format!("{LINUX}\n[[variant]]\nname = \"a\"\ncooperate = 1\n"),
                "x.toml:11: `cooperate` says in how many guests",
            ),
            (
                GOOD.replace("cpus = 4\n[[", "cpus = 4\ndilation = 16.0\n[[")
                    .replace("\"lock\"\n", "\"compute\"\nhalts = \"timer\"\nhalt_us = 100000.0\n"),
                "x.toml:10: halt_us = 100000 is out of range: 1 to 62500",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n"),
                "x.toml:11: there are two",
            ),
            (
                LINUX.replace("memory_mb", "dilation = 1.5\nmemory_mb"),
                "x.toml:4: 1.5 cannot stretch a Linux guest",
            ),
            (
                GOOD.replace(
                    "[[vm]]\ncount = 2\nvcpus = 4\npattern = \"lock\"",
                    "[linux]\npackages = []\ncpus = 4\ncommand = [\"x\"]",
                ),
                "x.toml:6: cpus = 4 is out of range: 1 to 3",
            ),
            (LINUX.replace("4096", "2000"), "x.toml:4: the host needs 2048 MB"),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\ncooperate = 1\n"),
                "x.toml:10: `cooperate` needs a [linux]",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\n[variant.governor]\n"),
                "x.toml:10: `governor` needs a [linux] table",
            ),
            (
                format!("{LINUX}\n[[variant]]\nname = \"a\"\ngovernor = {{ slow = 1 }}\n"),
                "x.toml:11: \"slow\" is no parameter",
            ),
            (
                format!("{LINUX}\n[[variant]]\nname = \"a\"\ngovernor = {{ interval_ms = 1 }}\n"),
                "x.toml:11: interval_ms = 1 is out of range: 100 to 100000",
            ),
            (
                format!("{LINUX}\n[[variant]]\nname = \"a\"\ngovernor = {{}}\nguest = []\n"),
                "x.toml:11: one of them packs a guest",
            ),
            (GOOD.replace("cpus = 4\n[[", "cpus = 4\nllcs = 3\n[["), "x.toml:4: 4 CPUs do not divide"),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\nfeatures = [\"NO_NEXT_BUDY\"]\n"),
                "x.toml:10: \"NO_NEXT_BUDY\" is no scheduler feature; did you mean NEXT_BUDDY?",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\nfeatures = [\"next_buddy\"]\n"),
                "x.toml:10: \"next_buddy\" is no scheduler feature: /sys/kernel/debug",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\npreferred = \"0-3\"\n"),
                "x.toml:10: \"0-3\" does not name some of the 4 CPUs and leave others out",
            ),
            (
                format!("{GOOD}[[variant]]\nname = \"a\"\npreferred = \"\"\n"),
                "x.toml:10: \"\" does not name some of the 4 CPUs",
            ),
        ];
        for (text, expected) in cases {
            let got = complaint(&text);
            assert!(got.starts_with(expected), "{got:?} should start with {expected:?}");
            assert!(!got.contains('\n'), "more than one sentence: {got:?}");
        }
    }
}
