// SPDX-License-Identifier: GPL-2.0-only
//! Options without a program's name before them.

use crate::values::complaint;
use anyhow::{Result, anyhow};
use clap::{Args, Parser};

/// Options as the lab sends them, or none at all for the defaults.
#[derive(Parser)]
#[command(no_binary_name = true)]
pub struct Bare<T: Args> {
    /// The options.
    #[command(flatten)]
    pub options: T,
}

impl<T: Args> Bare<T> {
    /// Parses these arguments.
    ///
    /// # Errors
    /// They are none of the command's; one sentence.
    pub fn options_of(arguments: &[impl AsRef<str>]) -> Result<T> {
        match Bare::<T>::try_parse_from(arguments.iter().map(AsRef::as_ref)) {
            Ok(bare) => Ok(bare.options),
            Err(why) => Err(anyhow!(complaint(&why))),
        }
    }
}
