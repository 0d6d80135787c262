// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`.

use crate::host;
use anyhow::Result;
use overbook_guest::Options;

/// Schedules until Ctrl-C or SIGTERM.
pub fn run(options: &Options) -> Result<()> {
    overbook_guest::run(options, &host::stop_at_signals()?)
}
