// SPDX-License-Identifier: GPL-2.0-only
//! Tells guests what they can have: QEMU connects a virtio-serial port of each VM to this socket, and the host writes to
//! it. Whose port it is the kernel says (SO_PEERCRED: the process that has connected), so a guest hears only of itself;
//! what it says is never looked at, so a host believes nothing of it.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use overbook_cli::files::make_dir;
use overbook_scheduler::told::Told;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where QEMU connects.
pub const SOCKET: &str = "/run/overbook/guests.sock";

/// Most connections, and of one process; others are closed.
const MOST: usize = 4096;
const MOST_OF_ONE: usize = 4;
/// Most that are taken at a time: whoever connects without end does not hold up the host.
const MOST_AT_ONCE: usize = 256;
/// Most reads at a time of what a guest says.
const MOST_READS: usize = 64;

/// The socket, and who is connected. The file goes with the value.
pub struct Channel {
    listener: UnixListener,
    path: PathBuf,
    /// The file's own number: another one's may have its name by the time that it goes.
    inode: u64,
    /// Ports by the process of their VM.
    ports: BTreeMap<u32, Vec<UnixStream>>,
    /// Most of them.
    most: usize,
}

impl Channel {
    /// Listens at a path; what an earlier one has left there is replaced.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn open(path: &Path) -> Result<Channel> {
        if let Some(dir) = path.parent() {
            make_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let _ = fs::remove_file(path);
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        // QEMU runs as a user of its own. Anybody may connect, and hears nothing unless it is a VM.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        // By default a process may have open fewer files than there may be ports.
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        let inode = fs::metadata(path)?.ino();
        Ok(Channel { listener, path: path.into(), inode, ports: BTreeMap::new(), most: MOST })
    }

    /// Takes those who have connected since the last call. A user who fills it with processes that are no VMs loses them as
    /// soon as somebody else comes.
    pub fn accept(&mut self, is_vm: impl Fn(u32) -> bool) {
        for _ in 0..MOST_AT_ONCE {
            let Ok((port, _)) = self.listener.accept() else { return };
            let peer = getsockopt(&port, sockopt::PeerCredentials).map(|peer| peer.pid());
            if self.is_full() {
                self.ports.retain(|pid, _| is_vm(*pid));
            }
            let (Ok(pid), false, Ok(())) = (peer, self.is_full(), port.set_nonblocking(true)) else {
                continue;
            };
            let own = self.ports.entry(pid as u32).or_default();
            own.retain(|port| !is_closed(port));
            if own.len() < MOST_OF_ONE {
                own.push(port);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.ports.values().map(Vec::len).sum::<usize>() >= self.most
    }

    /// Tells the VM of a process. One that has not taken the last line yet misses this one: it will not find many old ones
    /// when it begins to listen.
    pub fn tell(&mut self, pid: u32, told: &Told) -> Result<()> {
        let Some(ports) = self.ports.get_mut(&pid) else { return Ok(()) };
        let mut line = serde_json::to_vec(told)?;
        line.push(b'\n');
        // A line that was cut would be two wrong ones, so it ends the connection; QEMU connects again.
        ports.retain_mut(|port| match unread(port) {
            0 => port.write(&line).map_or_else(|e| e.kind() == ErrorKind::WouldBlock, |n| n == line.len()),
            _ => true,
        });
        Ok(())
    }

    /// Forgets those that have gone, as VMs do that end.
    pub fn forget_closed(&mut self) {
        self.ports.retain(|_, ports| {
            ports.retain(|port| !is_closed(port));
            !ports.is_empty()
        });
    }

    /// Processes that are connected.
    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.keys().copied()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Bytes that the other end has not read yet.
fn unread(port: &UnixStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: the descriptor is a socket's, and the kernel writes an int.
    match unsafe { libc::ioctl(port.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) } {
        0 => bytes,
        _ => 0,
    }
}

/// Whether the other end has gone. What it says is thrown away, so that its end is seen behind it; not without end, as it
/// may write as fast as that.
fn is_closed(port: &UnixStream) -> bool {
    let mut bytes = [0; 4096];
    let reads =
        (0..MOST_READS).map_while(|_| recv(port.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).ok());
    reads.into_iter().any(|read| read == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn a_vm_hears_of_itself_and_nobody_else_does() {
        let dir = std::env::temp_dir().join(format!("overbook-channel-{}", std::process::id()));
        let path = dir.join("guests.sock");
        let mut channel = Channel::open(&path).unwrap();
        let port = UnixStream::connect(&path).unwrap();
        channel.accept(|_| true);
        let own = std::process::id();
        assert_eq!(channel.processes().collect::<Vec<_>>(), [own]);
        let told = Told { cpus: 1.5, for_ms: 3000 };
        channel.tell(own + 1, &Told { cpus: 9.0, for_ms: 1 }).unwrap();
        channel.tell(own, &told).unwrap();
        let mut lines = BufReader::new(port.try_clone().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Told>(&line).unwrap(), told);
        // One that never reads does not hold up the host, and finds one old line later.
        for _ in 0..1000 {
            channel.tell(own, &told).unwrap();
        }
        lines.next().unwrap().unwrap();
        port.set_nonblocking(true).unwrap();
        assert_eq!(lines.next().unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
        let others: Vec<UnixStream> = (0..9).map(|_| UnixStream::connect(&path).unwrap()).collect();
        channel.accept(|_| true);
        assert_eq!(channel.ports[&own].len(), MOST_OF_ONE);
        channel.forget_closed();
        assert_eq!(channel.processes().count(), 1);
        (&port).write_all(b"a guest may write").unwrap();
        drop((port, lines, others));
        channel.forget_closed();
        assert_eq!(channel.processes().count(), 0, "nobody tells a VM that has ended anything");
        let next = Channel::open(&path).unwrap();
        drop(channel);
        assert!(path.exists(), "it is another one's by now");
        drop(next);
        assert!(!path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    /// Anybody may connect. Whoever does so with process after process does not keep VMs out.
    #[test]
    fn processes_that_are_no_vms_do_not_keep_vms_out() {
        let dir = std::env::temp_dir().join(format!("overbook-channel-full-{}", std::process::id()));
        let path = dir.join("guests.sock");
        let mut channel = Channel::open(&path).unwrap();
        channel.most = 3;
        let (stranger, vm) = (1, 2);
        let kept: Vec<_> = [stranger, vm, stranger]
            .map(|pid| {
                let (port, end) = UnixStream::pair().unwrap();
                channel.ports.entry(pid).or_default().push(port);
                end
            })
            .into();
        let port = UnixStream::connect(&path).unwrap();
        channel.accept(|pid| pid == vm);
        assert_eq!(channel.processes().collect::<Vec<_>>(), [vm, std::process::id()]);
        drop((kept, port));
        fs::remove_dir_all(dir).unwrap();
    }
}
