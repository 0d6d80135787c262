// SPDX-License-Identifier: GPL-2.0-only
//! Overbook itself, as somebody on this machine would call it.

use anyhow::{Context, Result};
use std::process::{Command, Output};

/// Runs it with these arguments to its end.
///
/// # Errors
/// It cannot be started. How it ended is for the caller to see.
pub fn overbook(arguments: &[&str]) -> Result<Output> {
    Command::new("/proc/self/exe").args(arguments).output().context("cannot start overbook")
}
