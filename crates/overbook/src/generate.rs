// SPDX-License-Identifier: GPL-2.0-only
//! Man pages and shell completions, made from the command line's own definition.

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::PathBuf;

#[derive(Args)]
pub struct Generate {
    /// Folder to write to: `man/` and `completions/` are made in it
    folder: PathBuf,
}

impl Generate {
    /// Writes a page per command, and completions for bash, zsh and fish.
    pub fn run(self, mut command: Command) -> Result<()> {
        let folder = |name: &str| -> Result<PathBuf> {
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            Ok(folder)
        };
        let completions = folder("completions")?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            generate_to(shell, &mut command, "overbook", &completions)?;
        }
        clap_mangen::generate_to(command, folder("man")?)?;
        Ok(())
    }
}
