// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`.

use crate::host::{Common, hide_libbpf, stop_at_signals};
use anyhow::Result;
use clap::Args;
use overbook_guest::Options;
use overbook_observe::exporter::Subject;

#[derive(Args)]
#[command(mut_args(hide_libbpf))]
pub struct Guest {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

impl Guest {
    /// Schedules until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        self.common.start(Subject::Guest)?;
        overbook_guest::run(&self.options, &stop_at_signals()?)
    }
}
