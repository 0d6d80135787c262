// SPDX-License-Identifier: GPL-2.0-only
//! The steal governor of the kernel series (docs/kernel.md) in a Linux guest.

use crate::machine::describe::parse_cpus;
use crate::machine::switches::PREFERRED;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PARAMETERS: &str = "/sys/module/steal_governor/parameters";

/// The governor at work.
pub struct Governor {
    /// What its parameters were before.
    own: Vec<(String, String)>,
}

impl Governor {
    /// Sets these parameters and switches it on.
    ///
    /// # Errors
    /// The kernel has no governor.
    pub fn start(parameters: &BTreeMap<String, u64>) -> Result<Governor> {
        let mut governor = Governor { own: Vec::new() };
        for (name, value) in parameters {
            governor.set(name, &value.to_string())?;
        }
        governor.set("enabled", "Y")?;
        Ok(governor)
    }

    /// Switches it off: all CPUs are preferred again, and parameters are what they were.
    ///
    /// # Errors
    /// The kernel refuses one of them.
    pub fn end(self) -> Result<()> {
        for (name, own) in self.own.iter().rev() {
            fs::write(Path::new(PARAMETERS).join(name), own)
                .with_context(|| format!("cannot put {name} of the steal governor back"))?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let file = Path::new(PARAMETERS).join(name);
        let own = fs::read_to_string(&file).with_context(|| {
            format!("this kernel's steal governor has no {name}: `--kernel patched` boots one that has")
        })?;
        fs::write(&file, value).with_context(|| format!("the kernel refuses {value} for {name}"))?;
        self.own.push((name.into(), own.trim().into()));
        Ok(())
    }
}

/// CPUs that the kernel prefers; none if it has no such thing.
pub fn preferred_cpus() -> Option<Vec<u32>> {
    parse_cpus(fs::read_to_string(PREFERRED).ok()?.trim()).ok()
}
