// SPDX-License-Identifier: GPL-2.0-only
//! What programs say. Output that fails is an error like any other: whoever holds a scheduler lets go of it on the way out.

use anyhow::Error;
use std::fmt;
use std::io::{self, Write};

/// Stdout, whose errors say that they are its.
#[derive(Debug)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(named)
    }
}

/// Says something beside the output. Where nobody listens, nothing is lost.
pub fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Tells the service manager that this program does from now on what it was started for. Where there is none, nothing is lost.
pub fn ready() {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// Whether an error is nothing but a reader of [`Stdout`] who has had enough.
pub fn is_closed(error: &Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| {
            e.kind() == io::ErrorKind::BrokenPipe && e.get_ref().is_some_and(|inner| inner.is::<Unwritten>())
        })
    })
}

fn named(error: io::Error) -> io::Error {
    // std tries these again.
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    io::Error::new(error.kind(), Unwritten(error))
}

/// What [`Stdout`] could not take.
#[derive(Debug)]
struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "cannot write the output: {}", self.0)
    }
}

impl std::error::Error for Unwritten {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_a_closed_output_is_no_failure() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let ours = Err::<(), _>(named(broken())).context("on the way").unwrap_err();
        assert!(is_closed(&ours));
        // A pipe to a VM or to QEMU is another matter.
        assert!(!is_closed(&Error::from(broken())));
        let full = Error::from(named(io::Error::from(io::ErrorKind::StorageFull)));
        assert!(!is_closed(&full));
        assert!(full.to_string().starts_with("cannot write the output: "), "{full}");
    }
}
