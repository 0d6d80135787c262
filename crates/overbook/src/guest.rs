// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`.

use crate::host::{Common, arranged, stop_at_signals};
use anyhow::Result;
use clap::Args;
use overbook_guest::Options;
use overbook_observe::exporter::Subject;

#[derive(Args)]
#[command(mut_args(arranged))]
pub struct Guest {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

impl Guest {
    /// Schedules until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        if !self.options.dry_run && !self.options.help_stats && self.options.replay.is_none() {
            self.common.start(Subject::Guest)?;
        }
        overbook_guest::run(&self.options, &stop_at_signals()?)
    }
}
