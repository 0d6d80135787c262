// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts steered by ourselves, where no irqbalance runs and the user asks for it: off by default, as it is a
//! matter of taste whose job that is.

use overbook_cli::cpulist::{self, Cpus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The affinities of interrupts that were moved, as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    folder: PathBuf,
    before: BTreeMap<u32, String>,
    /// What is to be written next.
    #[serde(skip)]
    due: BTreeMap<u32, String>,
}

impl Steering {
    /// Nothing is moved yet; `folder` is `/proc/irq`.
    pub fn new(folder: &Path) -> Steering {
        Steering { folder: folder.into(), ..Steering::default() }
    }

    /// Finds out which interrupts have to move to be at those of their CPUs that are preferred, or at all preferred ones if
    /// they have none of them; what these had is part of what is put back from here on. Only those that have no other
    /// preferred CPU are at isolated ones, which always are preferred.
    pub fn survey(&mut self, preferred: &Cpus, isolated: &Cpus) {
        self.due.clear();
        let shared: Cpus = preferred.difference(isolated).copied().collect();
        let of = |allowed: &Cpus, cpus: &Cpus| allowed.intersection(cpus).copied().collect::<Cpus>();
        let irqs = self.irqs();
        // One that has gone with its device is another's when it comes again. None at all means that nothing could be read.
        self.before.retain(|irq, _| irqs.is_empty() || irqs.contains(irq));
        for irq in irqs {
            let Ok(now) = fs::read_to_string(self.file(irq)) else { continue };
            let original = self.before.get(&irq).unwrap_or(&now).trim().to_string();
            let Ok(allowed) = cpulist::parse(&original) else { continue };
            let choices = [of(&allowed, &shared), of(&allowed, preferred), shared.clone(), preferred.clone()];
            let wanted =
                choices.iter().find(|cpus| !cpus.is_empty()).map(cpulist::format).unwrap_or_default();
            if wanted != now.trim() {
                self.before.insert(irq, original);
                self.due.insert(irq, wanted);
            }
        }
    }

    /// Moves what the survey has found; how many were moved. Those that the kernel manages refuse, and stay.
    pub fn follow(&mut self) -> usize {
        let due = std::mem::take(&mut self.due);
        due.into_iter().filter(|(irq, wanted)| fs::write(self.file(*irq), wanted).is_ok()).count()
    }

    /// Puts everything back.
    pub fn restore(&mut self) {
        for (irq, cpus) in std::mem::take(&mut self.before) {
            // It may be gone with its device.
            let _ = fs::write(self.file(irq), cpus);
        }
    }

    fn file(&self, irq: u32) -> PathBuf {
        self.folder.join(irq.to_string()).join("smp_affinity_list")
    }

    fn irqs(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_follow_and_go_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = |irq: u32| dir.path().join(irq.to_string()).join("smp_affinity_list");
        for (irq, cpus) in [(1, "0-3\n"), (9, "2-3\n"), (20, "0\n")] {
            fs::create_dir(dir.path().join(irq.to_string())).unwrap();
            fs::write(file(irq), cpus).unwrap();
        }
        let read = |irq| fs::read_to_string(file(irq)).unwrap().trim().to_string();
        let mut steering = Steering::new(dir.path());
        steering.survey(&Cpus::from([0, 1]), &Cpus::new());
        let mut told = steering.clone();
        told.restore();
        assert_eq!([read(1), read(9), read(20)], ["0-3", "2-3", "0"], "nothing was moved");
        assert_eq!(steering.follow(), 2);
        assert_eq!([read(1), read(9), read(20)], ["0-1", "0-1", "0"]);
        steering.survey(&Cpus::from([0, 1, 2]), &Cpus::new());
        assert_eq!(steering.follow(), 2);
        assert_eq!([read(1), read(9)], ["0-2", "2"]);
        steering.restore();
        assert_eq!([read(1), read(9), read(20)], ["0-3", "2-3", "0"]);
    }

    #[test]
    fn what_a_device_had_is_not_given_to_the_next_of_its_number() {
        let dir = tempfile::tempdir().unwrap();
        // Some machine's timer, which stays.
        fs::create_dir(dir.path().join("0")).unwrap();
        let folder = dir.path().join("9");
        let plug = |cpus: &str| {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("smp_affinity_list"), cpus).unwrap();
        };
        let mut steering = Steering::new(dir.path());
        let mut look = |cpus: [usize; 2]| {
            steering.survey(&cpus.into(), &Cpus::new());
            steering.follow();
        };
        plug("2-3");
        look([0, 1]);
        fs::remove_dir_all(&folder).unwrap();
        look([0, 1]);
        plug("0");
        look([0, 1]);
        steering.restore();
        assert_eq!(fs::read_to_string(folder.join("smp_affinity_list")).unwrap(), "0");
    }

    #[test]
    fn a_list_that_cannot_be_read_once_costs_nobody_its_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let (all, file) = (dir.path().join("irq"), dir.path().join("irq/9/smp_affinity_list"));
        fs::create_dir_all(all.join("9")).unwrap();
        fs::write(&file, "2-3").unwrap();
        let mut steering = Steering::new(&all);
        steering.survey(&Cpus::from([0, 1]), &Cpus::new());
        assert_eq!(steering.follow(), 1);
        fs::rename(&all, dir.path().join("away")).unwrap();
        steering.survey(&Cpus::from([0, 1]), &Cpus::new());
        fs::rename(dir.path().join("away"), &all).unwrap();
        steering.restore();
        assert_eq!(fs::read_to_string(&file).unwrap(), "2-3");
    }

    #[test]
    fn isolated_cpus_are_spared() {
        let dir = tempfile::tempdir().unwrap();
        let file = |irq: usize| dir.path().join(irq.to_string()).join("smp_affinity_list");
        let irqs = ["2-3", "0-7", "7", "3,7"];
        for (irq, cpus) in irqs.iter().enumerate() {
            fs::create_dir(dir.path().join(irq.to_string())).unwrap();
            fs::write(file(irq), cpus).unwrap();
        }
        let mut steering = Steering::new(dir.path());
        steering.survey(&Cpus::from([0, 1, 7]), &Cpus::from([7]));
        steering.follow();
        let now: Vec<String> = (0..irqs.len()).map(|irq| fs::read_to_string(file(irq)).unwrap()).collect();
        assert_eq!(now, ["0-1", "0-1", "7", "7"]);
    }
}
