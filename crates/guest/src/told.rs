// SPDX-License-Identifier: GPL-2.0-only
//! What the host tells the guest, if it runs `overbook host` and has given the guest a port: see docs/guest.md.

use overbook_scheduler::told::Told;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the port.
pub const PORT: &str = "org.overbook.0";

/// Where ports and their names are.
const PORTS: &str = "/sys/class/virtio-ports";

/// What was told so long ago says nothing any more, before dilation. The host tells twice a second.
const STALE: Duration = Duration::from_secs(3);

/// Longest line that is one; more than this without an end is none.
const LONGEST: usize = 4096;

/// More lines than the rings of a port hold; a host that says more says the rest the next time.
const MOST_READS: usize = 4096;

/// How often it is looked for, while there is none.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The port, if there is one.
pub struct Port {
    /// Where ports and their names are, and their devices.
    ports: PathBuf,
    devices: PathBuf,
    looked: Option<Instant>,
    file: Option<PathBuf>,
    stale: Duration,
    open: Option<File>,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    /// The first line after opening may have lain there for long.
    heard: bool,
    last: Option<(Instant, Told)>,
}

impl Port {
    /// The guest's port, which may come and go as devices do. Times are stretched by `stretch`.
    pub fn new(stretch: f64) -> Port {
        Port::among(Path::new(PORTS), Path::new("/dev"), stretch)
    }

    fn among(ports: &Path, devices: &Path, stretch: f64) -> Port {
        Port {
            ports: ports.into(),
            devices: devices.into(),
            looked: None,
            file: None,
            stale: STALE.mul_f64(stretch),
            open: None,
            rest: Vec::new(),
            heard: false,
            last: None,
        }
    }

    /// Looks for the port, now and then.
    fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let named = |entry: &fs::DirEntry| {
            fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT)
        };
        let mut entries = fs::read_dir(&self.ports).into_iter().flatten().flatten();
        self.file = entries.find(named).map(|port| self.devices.join(port.file_name()));
    }

    /// What the host tells now; `None` if it has told nothing for some time.
    pub fn latest(&mut self) -> Option<Told> {
        self.listen();
        let (at, told) = self.last?;
        (at.elapsed() < self.stale).then_some(told)
    }

    /// Reads what has come, without waiting. What is read late counts as told then.
    pub fn listen(&mut self) {
        if self.open.is_none() {
            self.look();
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(libc::O_NONBLOCK);
            self.open = self.file.as_ref().and_then(|file| options.open(file).ok());
            (self.rest, self.heard) = (Vec::new(), false);
        }
        let Some(port) = &mut self.open else { return };
        let mut buffer = [0; LONGEST];
        // A read takes one line, as the host has written it, and a guest that was paused finds all of the port's ring full.
        for _ in 0..MOST_READS {
            match port.read(&mut buffer) {
                // Nobody is at the other end.
                Ok(0) => break,
                Ok(n) => self.rest.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.open = None;
                    break;
                }
            }
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let told = serde_json::from_slice::<Told>(&line).ok().filter(Told::is_sound);
            if let (true, Some(told)) = (self.heard, told) {
                self.last = Some((Instant::now(), told));
            }
            self.heard = true;
        }
        if self.rest.len() > LONGEST {
            (self.rest, self.heard) = (Vec::new(), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread::sleep;

    /// A device that has no name in `ports`, which is this folder too.
    fn fifo() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vport0p1");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        (dir, path)
    }

    /// The port of this device, wherever it was found.
    fn at(file: &Path, stretch: f64) -> Port {
        let found = Some(Instant::now());
        Port { looked: found, file: Some(file.into()), ..Port::among(Path::new(""), Path::new(""), stretch) }
    }

    #[test]
    fn the_last_sound_line_counts_until_it_is_stale() {
        let (_dir, path) = fifo();
        let mut port = at(&path, 0.1);
        assert_eq!(port.latest(), None);
        let mut host = OpenOptions::new().write(true).open(&path).unwrap();
        let mut tell = |text: &str| {
            host.write_all(text.as_bytes()).unwrap();
            port.latest().map(|told| told.cpus)
        };
        assert_eq!(tell("{\"cpus\":9.0,\"for_ms\":1}\n"), None, "that may be old");
        assert_eq!(tell("{\"cpus\":1.5,\"for_ms\":1}\n{\"cpus\":2"), Some(1.5));
        assert_eq!(tell(".5,\"for_ms\":10,\"more\":true}\n"), Some(2.5));
        for nonsense in
            ["\n", "{}\n", "{\"cpus\":-1,\"for_ms\":1}\n", "{\"cpus\":1e99,\"for_ms\":1}\n", "\u{0}\u{7f}\n"]
        {
            assert_eq!(tell(nonsense), Some(2.5), "{nonsense:?}");
        }
        assert_eq!(tell(&"x".repeat(3 * LONGEST)), Some(2.5));
        assert_eq!(tell("\n{\"cpus\":3.0,\"for_ms\":1}\n"), Some(3.0));
        sleep(Duration::from_millis(320));
        assert_eq!(tell(""), None);
        drop(host);
        assert_eq!(port.latest(), None);
    }

    /// A virtio port gives what the host wrote at a time, which is one line, and has many of them for a guest that was
    /// paused.
    #[test]
    fn all_lines_that_have_come_are_read_at_once() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
        let (host, guest) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap();
        let mut port = at(Path::new(""), 1.0);
        port.open = Some(File::from(guest));
        let mut host = File::from(host);
        for nth in 1..=40 {
            host.write_all(format!("{{\"cpus\":{nth}.0,\"for_ms\":1}}\n").as_bytes()).unwrap();
        }
        assert_eq!(port.latest().map(|told| told.cpus), Some(40.0));
    }

    #[test]
    fn a_port_is_found_by_its_name_when_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let mut port = Port::among(dir.path(), dir.path(), 1.0);
        assert_eq!(port.latest(), None);
        for (nth, name) in [("vport1p1", "org.qemu.guest_agent.0\n"), ("vport1p2", "org.overbook.0\n")] {
            fs::create_dir(dir.path().join(nth)).unwrap();
            fs::write(dir.path().join(nth).join("name"), name).unwrap();
        }
        port.looked = None;
        port.listen();
        assert_eq!(port.file, Some(dir.path().join("vport1p2")));
        fs::remove_dir_all(dir.path().join("vport1p2")).unwrap();
        port.looked = None;
        port.listen();
        assert_eq!(port.file, None);
    }
}
