// SPDX-License-Identifier: GPL-2.0-only
//! irqbalance, told through its own socket which CPUs to leave alone.
//!
//! The interface is that of irqbalance-ui: one message per connection, with the sender's credentials; `setup` answers
//! with the CPUs that are banned, as a mask; `settings cpus LIST` bans others instead, `settings cpus NULL` goes back to
//! what irqbalance was configured with (irqbalance.c, sock_handle()). Anybody may listen under such a name, so whoever
//! answers is believed only if it is root's process.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials, connect,
    getsockopt, recv, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;
use overbook_cli::cpulist::{self, Cpus};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Where irqbalance puts its socket, with its process in the name.
pub(crate) const FOLDER: &str = "/run/irqbalance";

/// Longest answer, bytes: interrupts and bans of 8,192 CPUs are less.
const LONGEST: usize = 1 << 20;

/// It answers from its main loop; longest wait for all of an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A message that it does not know, and does nothing for. Without any, it would read what an earlier one has left in its
/// memory (irqbalance.c of 1.9.4, sock_handle()).
pub const KNOCK: &str = "?";

/// A running irqbalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irqbalance {
    /// Path of its socket, or its name with `@` in front if it is an abstract one.
    pub socket: String,
    /// What it had banned before it was told anything.
    pub banned: Cpus,
}

impl Irqbalance {
    /// The irqbalance that runs, if one does and answers.
    pub fn find() -> Option<Irqbalance> {
        Irqbalance::find_in(Path::new(FOLDER))
    }

    /// With its socket in this folder, or an abstract one.
    pub(crate) fn find_in(folder: &Path) -> Option<Irqbalance> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path().display().to_string());
        let found = paths.filter(|path| path.ends_with(".sock")).find_map(|path| Irqbalance::at(&path).ok());
        found.or_else(|| {
            // Anybody may make as many of these as he likes, and accept nobody.
            let began = Instant::now();
            let names = abstract_sockets(&fs::read("/proc/net/unix").unwrap_or_default());
            let mut in_time = names.into_iter().take_while(|_| began.elapsed() < PATIENCE);
            in_time.find_map(|name| Irqbalance::ask(&name, SockFlag::SOCK_NONBLOCK).ok())
        })
    }

    /// Whether nobody listens at its socket any more, which it leaves behind when it is killed. One that is slow does listen.
    pub fn has_gone(&self) -> bool {
        let knock = || -> Result<()> {
            let (stream, address) = socket_to(&self.socket, SockFlag::SOCK_NONBLOCK)?;
            connect(stream.as_raw_fd(), &address)?;
            send(&stream, KNOCK)
        };
        knock().is_err_and(|why| is_unattended(&why))
    }

    /// The irqbalance behind a socket, with what it had banned at its last scan.
    ///
    /// # Errors
    /// Nobody answers there, or nobody who is root.
    pub fn at(socket: &str) -> Result<Irqbalance> {
        Irqbalance::ask(socket, SockFlag::empty())
    }

    fn ask(socket: &str, flags: SockFlag) -> Result<Irqbalance> {
        let setup = exchange(socket, flags, "setup", true)?;
        let mask = setup.split("BANNED ").nth(1).context("irqbalance does not say what it has banned")?;
        Ok(Irqbalance { socket: socket.into(), banned: parse_mask(mask)? })
    }

    /// Has it leave these CPUs alone, and those it had banned before.
    ///
    /// # Errors
    /// It does not listen any more.
    pub fn ban(&self, cpus: &Cpus) -> Result<()> {
        self.set(&self.with(cpus))
    }

    /// These CPUs, and those it had banned before.
    pub(crate) fn with(&self, cpus: &Cpus) -> Cpus {
        cpus.union(&self.banned).copied().collect()
    }

    /// Puts back what it had before.
    ///
    /// # Errors
    /// It does not listen any more.
    pub fn restore(&self) -> Result<()> {
        self.set(&self.banned)
    }

    fn set(&self, cpus: &Cpus) -> Result<()> {
        // Without bans, its own configuration says so: an empty list would stand for "ask the user interface".
        let list = if cpus.is_empty() { "NULL".into() } else { cpulist::format(cpus) };
        exchange(&self.socket, SockFlag::empty(), &format!("settings cpus {list}"), false).map(drop)
    }
}

/// Whether a message did not arrive because nobody listens, not even slowly.
pub(crate) fn is_unattended(why: &anyhow::Error) -> bool {
    matches!(why.downcast_ref(), Some(Errno::ECONNREFUSED | Errno::ENOENT))
}

/// Abstract sockets that are named as irqbalance's are, of the kernel's list, in which names are any bytes.
fn abstract_sockets(list: &[u8]) -> Vec<String> {
    let unix = String::from_utf8_lossy(list);
    let names = unix.lines().filter_map(|line| line.split_whitespace().last());
    names.filter(|name| name.starts_with("@irqbalance")).map(str::to_string).collect()
}

/// Reads a mask of CPUs: words of 32 bits in hexadecimal, the highest first, with commas.
fn parse_mask(text: &str) -> Result<Cpus> {
    let mut cpus = Cpus::new();
    for (nth, word) in text.trim().trim_end_matches('\0').rsplit(',').enumerate() {
        let Ok(bits) = u32::from_str_radix(word, 16) else {
            bail!("{text:?} is not a mask of CPUs");
        };
        cpus.extend((0..32).filter(|bit| bits & 1 << bit != 0).map(|bit| 32 * nth + bit));
    }
    Ok(cpus)
}

/// One message, with our credentials, and the answer if there is one.
fn exchange(socket: &str, flags: SockFlag, message: &str, answered: bool) -> Result<String> {
    let stream = open(socket, flags).with_context(|| format!("irqbalance does not listen at {socket}"))?;
    send(&stream, message).context("irqbalance does not take messages")?;
    if !answered {
        return Ok(String::new());
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let began = Instant::now();
    while answer.len() < LONGEST && began.elapsed() < PATIENCE {
        match recv(stream.as_raw_fd(), &mut buffer, MsgFlags::empty())
            .context("irqbalance does not answer")?
        {
            0 => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            n => answer.extend_from_slice(&buffer[..n]),
        }
    }
    bail!("irqbalance's answer does not end")
}

fn send(stream: &OwnedFd, message: &str) -> Result<()> {
    let credentials = UnixCredentials::new();
    let control = [ControlMessage::ScmCredentials(&credentials)];
    let text = [IoSlice::new(message.as_bytes())];
    sendmsg::<UnixAddr>(stream.as_raw_fd(), &text, &control, MsgFlags::empty(), None)?;
    Ok(())
}

/// A socket, and the address to connect it to.
fn socket_to(name: &str, flags: SockFlag) -> Result<(OwnedFd, UnixAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => UnixAddr::new_abstract(name.as_bytes())?,
        None => UnixAddr::new(Path::new(name))?,
    };
    Ok((socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | flags, None)?, address))
}

/// Connects; with `SOCK_NONBLOCK` at once or not at all.
fn open(name: &str, flags: SockFlag) -> Result<OwnedFd> {
    let (stream, address) = socket_to(name, flags)?;
    // One that hangs must not hang us.
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&stream, sockopt::ReceiveTimeout, &patience)?;
    setsockopt(&stream, sockopt::SendTimeout, &patience)?;
    connect(stream.as_raw_fd(), &address)?;
    fcntl(&stream, FcntlArg::F_SETFL(OFlag::empty()))?;
    let listener = getsockopt(&stream, sockopt::PeerCredentials)?.uid();
    if !is_trusted(listener, geteuid().as_raw()) {
        bail!("who listens there is user {listener}, and not root");
    }
    Ok(stream)
}

/// Whether a process believes another of that user: root's, or its own.
fn is_trusted(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread::JoinHandle;

    #[test]
    fn masks_are_read_from_the_right() {
        assert_eq!(parse_mask("0").unwrap(), Cpus::new());
        assert_eq!(parse_mask("00000001,00000006\n").unwrap(), Cpus::from([1, 2, 32]));
        assert!(parse_mask("xyz").is_err());
    }

    #[test]
    fn sockets_are_found_beside_names_that_are_no_text() {
        let list = b"Num RefCount Protocol Flags Type St Inode Path\n\
            1: 2 0 10000 1 01 7 @\xff\xfe\n2: 2 0 10000 1 01 8 @irqbalance71.sock\n3: 2 0 10000 1 01 9 /run/x\n";
        assert_eq!(abstract_sockets(list), ["@irqbalance71.sock"]);
    }

    #[test]
    fn only_root_is_believed() {
        assert!(is_trusted(0, 0) && is_trusted(0, 1000) && is_trusted(1000, 1000));
        assert!(!is_trusted(1000, 0));
    }

    /// An answer that never ends is given up, after as many bytes as any answer has.
    #[test]
    fn answers_have_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("irqbalance1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let talker = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut told = 0;
            while let Ok(n) = stream.write(&[b'1'; 4096]) {
                told += n;
            }
            told
        });
        let error = Irqbalance::at(&path.display().to_string()).unwrap_err().to_string();
        assert_eq!(error, "irqbalance's answer does not end");
        assert!(talker.join().unwrap() < 2 * LONGEST);
    }

    /// Answers as irqbalance does so many messages, and tells what it was told. The real one is in the lab's tests.
    pub(crate) fn stand_in(path: PathBuf, banned: &'static str, messages: usize) -> JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let told = serve(&listener, banned, messages);
            fs::remove_file(path).unwrap();
            told
        })
    }

    /// The same at a socket that stays. It does not wait for ever for messages that do not come, and knocking is none.
    pub(crate) fn serve(listener: &UnixListener, banned: &str, messages: usize) -> Vec<String> {
        setsockopt(listener, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).unwrap();
        let mut told = Vec::new();
        while told.len() < messages {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 512];
            let n = stream.read(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if text == "setup" {
                write!(stream, "SLEEP 10 BANNED {banned}").unwrap();
            }
            assert!(!text.is_empty(), "irqbalance would read what an earlier message has left");
            told.extend((text != KNOCK).then_some(text));
        }
        told
    }

    #[test]
    fn bans_come_on_top_and_go_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("irqbalance1.sock");
        let told = stand_in(socket.clone(), "00000000", 4);
        let socket = socket.display().to_string();
        let irqbalance = Irqbalance::at(&socket).unwrap();
        irqbalance.ban(&Cpus::from([2, 3])).unwrap();
        irqbalance.ban(&Cpus::new()).unwrap();
        irqbalance.restore().unwrap();
        let told = told.join().unwrap();
        assert_eq!(told, ["setup", "settings cpus 2-3", "settings cpus NULL", "settings cpus NULL"]);
        let told = stand_in(socket.clone().into(), "00000008", 3);
        let irqbalance = Irqbalance::at(&socket).unwrap();
        irqbalance.ban(&Cpus::from([1])).unwrap();
        irqbalance.restore().unwrap();
        assert_eq!(told.join().unwrap()[1..], ["settings cpus 1,3", "settings cpus 3"]);
        assert!(Irqbalance::at("/nonexistent.sock").is_err());
    }
}
