// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts go where tasks are: irqbalance is told, or, where none runs and the user asks for it, they are moved by
//! ourselves.

use crate::irqbalance::{FOLDER, Irqbalance};
use crate::options::Options;
use crate::steer::Steering;
use overbook_cli::cpulist::Cpus;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often an irqbalance is looked for that has come, or come again: it opens its socket some time after it has started,
/// and a new one knows nothing of what an earlier one was told.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Who has interrupts follow, and where they are.
pub(crate) struct Interrupts {
    irqbalance: Option<Irqbalance>,
    steering: Option<Steering>,
    /// Where irqbalance's socket is; `None`: it is to be left alone.
    folder: Option<PathBuf>,
    /// Whether they are moved where there is no irqbalance.
    steers: bool,
    look_every: Duration,
    looked: Instant,
    /// What they follow now.
    followed: Cpus,
}

impl Interrupts {
    /// All CPUs have them still.
    pub(crate) fn new(options: &Options, online: Cpus) -> Interrupts {
        let folder = (!options.no_irqbalance).then(|| FOLDER.into());
        Interrupts::of(folder, options.steer_irqs, online)
    }

    fn of(folder: Option<PathBuf>, steers: bool, online: Cpus) -> Interrupts {
        let irqbalance = folder.as_deref().and_then(Irqbalance::find_in);
        let steering = (steers && irqbalance.is_none()).then(steering);
        Interrupts {
            irqbalance,
            steering,
            folder,
            steers,
            look_every: LOOK_EVERY,
            looked: Instant::now(),
            followed: online,
        }
    }

    /// Who it is.
    pub(crate) fn who(&self) -> &'static str {
        match (&self.irqbalance, &self.steering) {
            (Some(_), _) => "irqbalance",
            (_, Some(_)) => "us",
            _ => "nobody",
        }
    }

    /// What has to be put back.
    pub(crate) fn undo(&self) -> (Option<(String, Cpus)>, Option<Steering>) {
        let irqbalance = self.irqbalance.as_ref();
        (irqbalance.map(|i| (i.socket.clone(), i.banned.clone())), self.steering.clone())
    }

    /// Finds out, now and then, whether irqbalance has come or gone; nobody follows the preferred CPUs then.
    pub(crate) fn look(&mut self, online: &Cpus) {
        let Some(folder) = self.folder.as_deref() else { return };
        if self.looked.elapsed() < self.look_every
            || !self.irqbalance.as_ref().is_none_or(Irqbalance::has_gone)
        {
            return;
        }
        self.looked = Instant::now();
        let (had, found) = (self.irqbalance.take(), Irqbalance::find_in(folder));
        self.irqbalance = found;
        if had.is_none() && self.irqbalance.is_none() {
            return;
        }
        log::info!("irqbalance has {}", if self.irqbalance.is_some() { "come" } else { "gone" });
        self.followed.clone_from(online);
        if let Some(mut steering) = self.steering.take() {
            steering.restore();
        }
        self.steering = (self.steers && self.irqbalance.is_none()).then(steering);
    }

    /// Whether they are elsewhere; finds out what has to be done, and so what will have to be put back.
    pub(crate) fn survey(&mut self, preferred: &Cpus, isolated: &Cpus) -> bool {
        if *preferred == self.followed {
            return false;
        }
        if let Some(steering) = &mut self.steering {
            steering.survey(preferred, isolated);
        }
        true
    }

    /// Does what the survey has found; whether anybody follows.
    pub(crate) fn follow(&mut self, preferred: &Cpus, online: &Cpus) -> bool {
        self.followed.clone_from(preferred);
        if let Some(irqbalance) = &self.irqbalance {
            let others = online.difference(preferred).copied().collect();
            if let Err(e) = irqbalance.ban(&others) {
                log::warn!("{e:#}: interrupts stay where they are");
                self.irqbalance = None;
            }
        }
        if let Some(steering) = &mut self.steering {
            steering.follow();
        }
        self.irqbalance.is_some() || self.steering.is_some()
    }
}

fn steering() -> Steering {
    Steering::new(Path::new("/proc/irq"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irqbalance::tests::stand_in;

    fn follow(interrupts: &mut Interrupts, preferred: &[usize]) -> bool {
        let (online, preferred) = (Cpus::from([0, 1, 2, 3]), preferred.iter().copied().collect());
        interrupts.look(&online);
        interrupts.survey(&preferred, &Cpus::new()) && interrupts.follow(&preferred, &online)
    }

    /// It comes after us when a machine boots, and is restarted by upgrades.
    #[test]
    fn an_irqbalance_that_comes_later_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut interrupts = Interrupts::of(Some(dir.path().into()), false, Cpus::from([0, 1, 2, 3]));
        interrupts.look_every = Duration::ZERO;
        assert_eq!((follow(&mut interrupts, &[0, 1]), interrupts.who()), (false, "nobody"));
        let told = stand_in(dir.path().join("irqbalance1.sock"), "00000000", 2);
        assert!(follow(&mut interrupts, &[0, 1]));
        assert_eq!(told.join().unwrap(), ["setup", "settings cpus 2-3"]);
        let told = stand_in(dir.path().join("irqbalance2.sock"), "00000008", 2);
        assert!(
            follow(&mut interrupts, &[0, 1]),
            "that it is another one is seen while nothing else changes"
        );
        // It goes when it has been told so much.
        assert_eq!(told.join().unwrap(), ["setup", "settings cpus 2-3"]);
        assert_eq!(interrupts.undo().0.unwrap().1, Cpus::from([3]));
        assert_eq!((follow(&mut interrupts, &[0, 1]), interrupts.who()), (false, "nobody"));
    }
}
