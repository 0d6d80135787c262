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

/// The port, if there is one.
pub struct Port {
    file: PathBuf,
    stale: Duration,
    open: Option<File>,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    /// The first line after opening may have lain there for long.
    heard: bool,
    last: Option<(Instant, Told)>,
}

impl Port {
    /// The guest's port; `None` if it has none. Times are stretched by `stretch`.
    pub fn find(stretch: f64) -> Option<Port> {
        Port::among(Path::new(PORTS), Path::new("/dev"), stretch)
    }

    fn among(ports: &Path, devices: &Path, stretch: f64) -> Option<Port> {
        let named = |entry: &fs::DirEntry| {
            fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT)
        };
        let port = fs::read_dir(ports).ok()?.flatten().find(named)?;
        Some(Port::at(devices.join(port.file_name()), stretch))
    }

    fn at(file: PathBuf, stretch: f64) -> Port {
        Port { file, stale: STALE.mul_f64(stretch), open: None, rest: Vec::new(), heard: false, last: None }
    }

    /// What the host tells now; `None` if it has told nothing for some time.
    pub fn latest(&mut self) -> Option<Told> {
        self.listen();
        let (at, told) = self.last?;
        (at.elapsed() < self.stale).then_some(told)
    }

    /// Reads what has come, without waiting.
    fn listen(&mut self) {
        if self.open.is_none() {
            self.open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.file).ok();
            (self.rest, self.heard) = (Vec::new(), false);
        }
        let Some(port) = &mut self.open else { return };
        let mut buffer = [0; LONGEST];
        // A host that says more than this at a time says the rest the next time.
        for _ in 0..16 {
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

    fn fifo() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vport0p1");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        (dir, path)
    }

    #[test]
    fn the_last_sound_line_counts_until_it_is_stale() {
        let (_dir, path) = fifo();
        let mut port = Port::at(path.clone(), 0.1);
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

    #[test]
    fn a_port_is_found_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for (port, name) in [("vport0p1", "org.qemu.guest_agent.0\n"), ("vport0p2", "org.overbook.0\n")] {
            fs::create_dir(dir.path().join(port)).unwrap();
            fs::write(dir.path().join(port).join("name"), name).unwrap();
        }
        let port = Port::among(dir.path(), Path::new("/dev"), 1.0).unwrap();
        assert_eq!(port.file, Path::new("/dev/vport0p2"));
        assert!(Port::among(&dir.path().join("vport0p1"), Path::new("/dev"), 1.0).is_none());
    }
}
