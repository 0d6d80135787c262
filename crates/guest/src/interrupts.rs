// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts go where tasks are: irqbalance is told, or, where none runs and the user asks for it, they are moved by
//! ourselves.

use crate::bans::{self, Bans};
use crate::irqbalance::{FOLDER, Irqbalance, is_unattended};
use crate::options::Options;
use crate::steer::Steering;
use anyhow::Result;
use overbook_cli::cpulist::Cpus;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often an irqbalance is looked for that has come, or come again: it opens its socket some time after it has started,
/// and a new one knows nothing of what an earlier one was told.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where the kernel lists interrupts.
const IRQS: &str = "/proc/irq";

/// Where all of that is.
struct Places {
    /// irqbalance's sockets; `None`: it is to be left alone.
    sockets: Option<PathBuf>,
    /// What irqbalance had banned before.
    bans: PathBuf,
    /// Interrupts that are moved where there is no irqbalance; `None`: they stay.
    irqs: Option<PathBuf>,
}

/// What interrupts follow.
struct Followed {
    online: Cpus,
    preferred: Cpus,
}

impl Followed {
    fn all(online: &Cpus) -> Followed {
        Followed { online: online.clone(), preferred: online.clone() }
    }
}

/// Who has interrupts follow, and where they are.
pub(crate) struct Interrupts {
    irqbalance: Option<Irqbalance>,
    bans: Bans,
    steering: Option<Steering>,
    places: Places,
    look_every: Duration,
    looked: Instant,
    /// Whether irqbalance has not taken what it was told last.
    unheard: bool,
    /// What they follow now, as far as it is known.
    followed: Option<Followed>,
}

impl Interrupts {
    /// All CPUs have them still.
    pub(crate) fn new(options: &Options, online: &Cpus) -> Interrupts {
        let sockets = (!options.no_irqbalance).then(|| FOLDER.into());
        let irqs = options.steer_irqs.then(|| IRQS.into());
        Interrupts::of(Places { sockets, bans: bans::FILE.into(), irqs }, online)
    }

    fn of(places: Places, online: &Cpus) -> Interrupts {
        let mut interrupts = Interrupts {
            irqbalance: None,
            bans: Bans::new(&places.bans),
            steering: None,
            places,
            look_every: LOOK_EVERY,
            looked: Instant::now(),
            unheard: false,
            followed: None,
        };
        interrupts.begin(interrupts.find(), online);
        interrupts
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

    /// Finds out, now and then, whether irqbalance has come or gone; nobody follows the preferred CPUs then. One that did not
    /// take what it was told is told again.
    pub(crate) fn look(&mut self, online: &Cpus) {
        if self.places.sockets.is_none() || self.looked.elapsed() < self.look_every {
            return;
        }
        self.looked = Instant::now();
        if self.irqbalance.as_ref().is_none_or(Irqbalance::has_gone) {
            self.find_another(online);
        } else if self.unheard {
            self.followed = None;
        }
    }

    /// Looks for an irqbalance in place of the one that was there, if one was.
    fn find_another(&mut self, online: &Cpus) {
        self.looked = Instant::now();
        let (had, found) = (self.irqbalance.take(), self.find());
        if had.is_none() && found.is_none() {
            return;
        }
        log::info!("irqbalance has {}", if found.is_some() { "come" } else { "gone" });
        if let Some(mut steering) = self.steering.take() {
            steering.restore();
        }
        self.begin(found, online);
    }

    fn find(&self) -> Option<Irqbalance> {
        self.bans.forget_gone();
        self.places.sockets.as_deref().and_then(Irqbalance::find_in)
    }

    /// Begins with an irqbalance, or without one. One that has bans of ours is told anew.
    fn begin(&mut self, found: Option<Irqbalance>, online: &Cpus) {
        let before = found.as_ref().and_then(|found| self.bans.before(found));
        self.followed = before.is_none().then(|| Followed::all(online));
        self.irqbalance = before.or(found);
        self.unheard = false;
        let irqs = self.places.irqs.as_deref().filter(|_| self.irqbalance.is_none());
        self.steering = irqs.map(Steering::new);
    }

    /// Whether they are elsewhere; finds out what has to be done, and so what will have to be put back.
    pub(crate) fn survey(&mut self, preferred: &Cpus, online: &Cpus, isolated: &Cpus) -> bool {
        let is_followed = |now: &Followed| now.preferred == *preferred && now.online == *online;
        if self.followed.as_ref().is_some_and(is_followed) {
            return false;
        }
        if let Some(steering) = &mut self.steering {
            steering.survey(preferred, isolated);
        }
        true
    }

    /// Does what the survey has found; whether anybody follows.
    pub(crate) fn follow(&mut self, preferred: &Cpus, online: &Cpus) -> bool {
        self.followed = Some(Followed { online: online.clone(), preferred: preferred.clone() });
        if let Some(steering) = &mut self.steering {
            steering.follow();
            return true;
        }
        let others = online.difference(preferred).copied().collect();
        match self.ban(&others) {
            Some(Ok(())) => self.unheard = false,
            Some(Err(why)) if is_unattended(&why) => {
                self.bans.forget();
                self.find_another(online);
                return false;
            }
            Some(Err(why)) => self.keep(&why),
            None => {}
        }
        self.irqbalance.is_some() && !self.unheard
    }

    fn ban(&self, cpus: &Cpus) -> Option<Result<()>> {
        let irqbalance = self.irqbalance.as_ref()?;
        Some(self.bans.note(irqbalance, cpus).and_then(|()| irqbalance.ban(cpus)))
    }

    /// An irqbalance that is only slow still has the bans that it was told before. It is told again later.
    fn keep(&mut self, why: &anyhow::Error) {
        if !self.unheard {
            log::warn!("{why:#}: interrupts stay where they are");
        }
        self.unheard = true;
        self.looked = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::irqbalance::KNOCK;
    use crate::irqbalance::tests::{serve, stand_in};
    use nix::sys::socket::{Backlog, listen};
    use std::fs;
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::thread::scope;

    const ONLINE: [usize; 4] = [0, 1, 2, 3];

    /// They look for irqbalance in a folder, and whenever they are asked to.
    fn begin(dir: &Path, irqs: Option<PathBuf>) -> Interrupts {
        let places = Places { sockets: Some(dir.into()), bans: dir.join("run/irqbalance.json"), irqs };
        Interrupts { look_every: Duration::ZERO, ..Interrupts::of(places, &Cpus::from(ONLINE)) }
    }

    fn follow_among(interrupts: &mut Interrupts, preferred: &[usize], online: &[usize]) -> bool {
        let [preferred, online] = [preferred, online].map(|cpus| cpus.iter().copied().collect());
        interrupts.look(&online);
        interrupts.survey(&preferred, &online, &Cpus::new()) && interrupts.follow(&preferred, &online)
    }

    fn follow(interrupts: &mut Interrupts, preferred: &[usize]) -> bool {
        follow_among(interrupts, preferred, &ONLINE)
    }

    /// It comes after us when a machine boots, and is restarted by upgrades.
    #[test]
    fn an_irqbalance_that_comes_later_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut interrupts = begin(dir.path(), None);
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

    /// irqbalance says what it is told from its next scan on.
    #[test]
    fn bans_of_an_earlier_program_are_not_the_operators() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("irqbalance1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let before = Some((socket.display().to_string(), Cpus::from([3])));
        scope(|threads| {
            let told = threads.spawn(|| serve(&listener, "00000008", 2));
            assert!(follow(&mut begin(dir.path(), None), &[0]));
            assert_eq!(told.join().unwrap(), ["setup", "settings cpus 1-3"]);
            let told = threads.spawn(|| serve(&listener, "0000000e", 3));
            let mut next = begin(dir.path(), None);
            assert_eq!(next.undo().0, before);
            assert!(follow(&mut next, &ONLINE), "nobody else may have put it back");
            assert!(follow(&mut next, &[0, 1]));
            assert_eq!(told.join().unwrap()[1..], ["settings cpus 3", "settings cpus 2-3"]);
        });
    }

    #[test]
    fn a_slow_irqbalance_is_told_again_and_has_no_other_bans_to_go_back_to() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("irqbalance1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let before = Some((socket.display().to_string(), Cpus::new()));
        let irqs = Some(dir.path().join("irq"));
        scope(|threads| {
            let told = threads.spawn(|| serve(&listener, "00000000", 2));
            let mut interrupts = begin(dir.path(), irqs);
            assert!(follow(&mut interrupts, &[0, 1]));
            assert_eq!(told.join().unwrap()[1..], ["settings cpus 2-3"]);
            // No more than one may wait for it.
            listen(&listener, Backlog::new(0).unwrap()).unwrap();
            let mut waits = UnixStream::connect(&socket).unwrap();
            waits.write_all(KNOCK.as_bytes()).unwrap();
            assert!(!follow(&mut interrupts, &[0]));
            assert_eq!((interrupts.undo().0, interrupts.who()), (before.clone(), "irqbalance"));
            drop(waits);
            let told = threads.spawn(|| serve(&listener, "0000000c", 1));
            assert!(follow(&mut interrupts, &[0]));
            assert_eq!(told.join().unwrap(), ["settings cpus 1-3"]);
            assert_eq!(interrupts.undo().0, before);
        });
    }

    /// Killed with SIGKILL, it leaves its socket behind; interrupts are moved then.
    fn a_killed_one_is_seen(look_every: Duration) {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("irqbalance1.sock")).unwrap();
        let irq = dir.path().join("irq/9");
        fs::create_dir_all(&irq).unwrap();
        fs::write(irq.join("smp_affinity_list"), "0-3\n").unwrap();
        let mut interrupts = scope(|threads| {
            threads.spawn(|| serve(&listener, "00000000", 2));
            let mut interrupts = begin(dir.path(), Some(dir.path().join("irq")));
            assert!(follow(&mut interrupts, &[0, 1, 2]));
            interrupts
        });
        drop(listener);
        interrupts.look_every = look_every;
        let affinity = || fs::read_to_string(irq.join("smp_affinity_list")).unwrap();
        if look_every.is_zero() {
            assert!(follow(&mut interrupts, &[0, 1, 2]), "nothing need change for it to be seen");
            assert_eq!((interrupts.who(), affinity()), ("us", "0-2".into()));
        } else {
            assert_eq!((follow(&mut interrupts, &[0, 1]), interrupts.who()), (false, "us"));
        }
        assert!(follow(&mut interrupts, &[0, 1]));
        assert_eq!(affinity(), "0-1");
        assert!(!dir.path().join("run/irqbalance.json").exists());
    }

    #[test]
    fn a_killed_irqbalance_is_seen_when_it_is_looked_for() {
        a_killed_one_is_seen(Duration::ZERO);
    }

    #[test]
    fn a_killed_irqbalance_is_seen_when_it_is_told() {
        a_killed_one_is_seen(LOOK_EVERY);
    }

    #[test]
    fn cpus_that_come_are_banned_too() {
        let dir = tempfile::tempdir().unwrap();
        let told = stand_in(dir.path().join("irqbalance1.sock"), "00000000", 3);
        let mut interrupts = begin(dir.path(), None);
        assert!(follow(&mut interrupts, &[0, 1]));
        assert!(follow_among(&mut interrupts, &[0, 1], &[0, 1, 2, 3, 4]));
        assert!(!interrupts.survey(&Cpus::from([0, 1]), &Cpus::from([0, 1, 2, 3, 4]), &Cpus::new()));
        assert_eq!(told.join().unwrap()[1..], ["settings cpus 2-3", "settings cpus 2-4"]);
    }
}
