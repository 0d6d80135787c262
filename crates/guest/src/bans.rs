// SPDX-License-Identifier: GPL-2.0-only
//! What irqbalance had banned before it was told anything. It says what it has been told only from its next scan on, which
//! is `sleep_interval` later (10 s): a program that begins meanwhile would take an earlier one's bans for the operator's.
//! So both are written down for as long as that irqbalance is there.

use crate::irqbalance::Irqbalance;
use anyhow::{Context, Result};
use overbook_cli::cpulist::{self, Cpus};
use overbook_cli::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where that is.
pub(crate) const FILE: &str = "/run/overbook/irqbalance.json";

/// An irqbalance that has been told to ban CPUs.
#[derive(Serialize, Deserialize)]
struct Told {
    /// As it was before.
    irqbalance: Irqbalance,
    /// All that it has been told, as lists.
    bans: BTreeSet<String>,
}

/// The file.
pub(crate) struct Bans(PathBuf);

impl Bans {
    /// Written down in `file`.
    pub(crate) fn new(file: &Path) -> Bans {
        Bans(file.into())
    }

    /// An irqbalance as it was before, if the bans that it has are ours. Bans that are none of ours are the operator's.
    pub(crate) fn before(&self, found: &Irqbalance) -> Option<Irqbalance> {
        let told = self.read().filter(|told| told.irqbalance.socket == found.socket)?;
        told.bans.contains(&cpulist::format(&found.banned)).then_some(told.irqbalance)
    }

    /// Writes down what an irqbalance is told, before it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note(&self, irqbalance: &Irqbalance, cpus: &Cpus) -> Result<()> {
        let all = irqbalance.with(cpus);
        let known = self.read().filter(|told| told.irqbalance == *irqbalance);
        let mut told = known.unwrap_or(Told { irqbalance: irqbalance.clone(), bans: BTreeSet::new() });
        if all == irqbalance.banned || !told.bans.insert(cpulist::format(&all)) {
            return Ok(());
        }
        files::replace(&self.0, &serde_json::to_vec(&told)?)
            .with_context(|| format!("cannot write {}", self.0.display()))
    }

    /// Forgets an irqbalance that is not there any more.
    pub(crate) fn forget_gone(&self) {
        if self.read().is_none_or(|told| told.irqbalance.has_gone()) {
            self.forget();
        }
    }

    /// Forgets whatever is written down.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.0);
    }

    fn read(&self) -> Option<Told> {
        serde_json::from_slice(&fs::read(&self.0).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn bans_of_ours_are_told_from_the_operators() {
        let dir = tempfile::tempdir().unwrap();
        let bans = Bans::new(&dir.path().join("overbook/irqbalance.json"));
        let at = |nth: u32, banned: &[usize]| Irqbalance {
            socket: dir.path().join(format!("irqbalance{nth}.sock")).display().to_string(),
            banned: banned.iter().copied().collect(),
        };
        assert_eq!(bans.before(&at(1, &[7])), None);
        bans.note(&at(1, &[7]), &Cpus::new()).unwrap();
        assert!(!bans.0.exists(), "nothing was told that it did not ban before");
        bans.note(&at(1, &[7]), &Cpus::from([2, 3])).unwrap();
        bans.note(&at(1, &[7]), &Cpus::from([3])).unwrap();
        assert_eq!(bans.before(&at(1, &[2, 3, 7])), Some(at(1, &[7])));
        assert_eq!(bans.before(&at(1, &[3, 7])), Some(at(1, &[7])));
        assert_eq!(bans.before(&at(1, &[2, 7])), None, "the operator's");
        assert_eq!(bans.before(&at(2, &[3, 7])), None, "another's");
        // What the operator has changed is what is to be put back from now on.
        bans.note(&at(1, &[2, 7]), &Cpus::from([1])).unwrap();
        assert_eq!(bans.before(&at(1, &[1, 2, 7])), Some(at(1, &[2, 7])));
        assert_eq!(bans.before(&at(1, &[3, 7])), None);
    }

    #[test]
    fn it_goes_with_its_irqbalance() {
        let dir = tempfile::tempdir().unwrap();
        let (file, socket) = (dir.path().join("irqbalance.json"), dir.path().join("irqbalance1.sock"));
        let irqbalance = Irqbalance { socket: socket.display().to_string(), banned: Cpus::new() };
        let bans = Bans::new(&file);
        for killed in [false, true] {
            let listener = UnixListener::bind(&socket).unwrap();
            bans.note(&irqbalance, &Cpus::from([1])).unwrap();
            bans.forget_gone();
            assert!(file.exists());
            drop(listener);
            if !killed {
                fs::remove_file(&socket).unwrap();
            }
            bans.forget_gone();
            assert!(!file.exists());
        }
        // What somebody has spoilt says nothing.
        fs::write(&file, "{").unwrap();
        assert_eq!(bans.before(&irqbalance), None);
        bans.forget_gone();
        assert!(!file.exists());
    }
}
