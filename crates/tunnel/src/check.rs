// SPDX-License-Identifier: GPL-2.0-only
//! What must hold while a host runs.

use crate::world::{Task, World};
use std::collections::BTreeMap;

/// Bounds that a host must keep; `None` is not checked.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Longest time that a runnable task may wait, ns.
    pub wait_ns: Option<u64>,
    /// Longest time that a CPU may idle beside a task that waits and may run there, or that one that is not preferred may
    /// run a task that may run elsewhere, ns.
    pub idle_ns: Option<u64>,
    /// Greatest difference between a tenant's time and its entitlement, of the entitlement.
    pub share: Option<f64>,
    /// Whether what the scheduler books for each VM must be what its vCPUs ran.
    pub booked: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { wait_ns: Some(1_000_000_000), idle_ns: Some(8_000_000), share: None, booked: true }
    }
}

/// What was found wrong, each kind once with its first words and how often.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<&'static str, (String, u64)>);

impl Findings {
    /// Adds one of a kind.
    pub fn add(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        self.0.entry(kind).and_modify(|(_, times)| *times += 1).or_insert_with(|| (what(), 1));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is one of a kind.
    pub fn has(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// All but those of a kind.
    #[must_use]
    pub fn without(mut self, kind: &str) -> Findings {
        self.0.remove(kind);
        self
    }

    /// Each kind with its first words and how often it was found.
    pub fn lines(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(kind, (what, times))| match times {
                1 => format!("{kind}: {what}"),
                _ => format!("{kind}: {what} ({times} times)"),
            })
            .collect()
    }
}

impl World {
    /// Whether a group, or one above it, has a `cpu.max`: its tasks may wait though CPUs idle.
    pub(crate) fn is_limited(&self, group: usize) -> bool {
        let (_, parent, _, limit) = self.groups[group];
        limit.is_finite() || parent.is_some_and(|above| self.is_limited(above))
    }

    /// Whether some preferred CPU may run a task.
    fn may_use_preferred(&self, task: &Task) -> bool {
        self.preferred.iter().any(|cpu| task.may_use(*cpu))
    }

    /// Finds tasks that stay on a CPU that is not preferred, and may use one that is.
    fn check_preferred(&mut self, limit: u64) {
        for nth in 0..self.tasks.len() {
            let task = &self.tasks[nth];
            let strays = task.on_cpu && !self.preferred.contains(&task.cpu) && self.may_use_preferred(task);
            let now = self.now;
            let task = &mut self.tasks[nth];
            task.strays_since = strays.then(|| task.strays_since.unwrap_or(now));
            if task.strays_since.is_some_and(|since| now - since.max(task.allowed_since) > limit) {
                let (name, cpu, at) = (&task.spec.name, task.cpu, now as f64 / 1e6);
                self.findings.add("prefer", || format!("{name} is on CPU {cpu} at {at:.1} ms"));
            }
        }
    }

    /// What must hold at any time.
    pub(crate) fn check(&mut self) {
        let bounds = self.host.bounds.clone();
        let now = self.now;
        for task in &self.tasks {
            let Some(waited) = task.waits_since.map(|since| now - since).filter(|_| task.alive) else {
                continue;
            };
            if let Some(limit) = bounds.wait_ns.filter(|limit| waited > *limit && task.spec.policy != 5) {
                self.findings.add("wait", || {
                    format!(
                        "{} has waited for {:.1} ms at {:.1} ms; the bound is {:.1}",
                        task.spec.name,
                        waited as f64 / 1e6,
                        now as f64 / 1e6,
                        limit as f64 / 1e6
                    )
                });
            }
        }
        let Some(limit) = bounds.idle_ns else { return };
        self.check_preferred(limit);
        let idle: Vec<u32> = (0..self.host.cpus)
            .filter(|cpu| self.cpus[*cpu as usize].idle_since.is_some_and(|since| now - since > limit))
            .collect();
        if idle.is_empty() {
            return;
        }
        let limited: Vec<bool> = (0..self.groups.len()).map(|group| self.is_limited(group)).collect();
        let is_free = |task: &&Task| task.alive && task.spec.group.is_none_or(|group| !limited[group]);
        for task in self.tasks.iter().filter(is_free) {
            if task.waits_since.is_none_or(|since| now - since.max(task.allowed_since) <= limit) {
                continue;
            }
            // Who may use no preferred CPU waits on one of its own, whichever.
            let cpu = match self.may_use_preferred(task) {
                true => idle.iter().find(|cpu| task.may_use(**cpu) && self.preferred.contains(cpu)),
                false => {
                    let mut own = (0..self.host.cpus).filter(|cpu| task.may_use(*cpu));
                    idle.first().filter(|_| own.all(|cpu| idle.contains(&cpu)))
                }
            };
            if let Some(cpu) = cpu {
                self.findings.add("idle", || {
                    format!("CPU {cpu} idles at {:.1} ms while {} waits", now as f64 / 1e6, task.spec.name)
                });
            }
        }
    }
}
