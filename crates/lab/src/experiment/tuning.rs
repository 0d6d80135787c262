// SPDX-License-Identifier: GPL-2.0-only
//! Scheduler knobs of a variant, set for the length of a run and put back after it.

use crate::machine::switches::{PREFERRED, SWITCHES};
use crate::scenario::Variant;
use anyhow::{Context, Result, ensure};
use std::fs;

const FEATURES: &str = "/sys/kernel/debug/sched/features";
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// Puts the knobs back when dropped.
#[derive(Default)]
pub struct Tuning {
    undo: Vec<(&'static str, String)>,
}

/// Sets the knobs of `variant`.
///
/// # Errors
/// The kernel does not know one of them.
pub fn apply(variant: &Variant, dilation: f64, default_slice_ns: u64) -> Result<Tuning> {
    let mut tuning = Tuning::default();
    ensure!(
        default_slice_ns > 0 || (dilation == 1.0 && variant.base_slice_us.is_none()),
        "this kernel has no {BASE_SLICE}, so slices cannot be set or stretched"
    );
    let slice = variant.base_slice_us.map_or(default_slice_ns as f64, |us| us * 1000.0) * dilation;
    if slice as u64 != default_slice_ns {
        set(BASE_SLICE, slice as u64)
            .with_context(|| format!("the kernel does not take a base slice of {slice} ns"))?;
        tuning.undo.push((BASE_SLICE, default_slice_ns.to_string()));
    }
    for feature in &variant.features {
        let known =
            fs::read_to_string(FEATURES).context("cannot read the scheduler's features in debugfs")?;
        let opposite = opposite(feature);
        if known.split_whitespace().any(|f| f == feature) {
            continue;
        }
        if !known.split_whitespace().any(|f| f == opposite) {
            anyhow::bail!("this kernel has no scheduler feature {feature}");
        }
        fs::write(FEATURES, feature).with_context(|| format!("cannot set scheduler feature {feature}"))?;
        tuning.undo.push((FEATURES, opposite));
    }
    for switch in &SWITCHES {
        let given = variant.kernel.get(switch.name).copied();
        let own = match (given, fs::read_to_string(switch.file)) {
            (None, Err(_)) => continue,
            (None, Ok(_)) if !switch.time || dilation == 1.0 => continue,
            (_, Ok(own)) => own.trim().to_string(),
            (Some(_), Err(_)) => anyhow::bail!(
                "this kernel has no switch {}: `overbook lab kernels --fetch patched` builds one that has, and `--kernel patched` boots it",
                switch.name
            ),
        };
        let value = match given {
            Some(value) => value,
            None => own.parse().with_context(|| format!("{} is no number: {own}", switch.file))?,
        };
        let value = if switch.time { (value as f64 * dilation) as u64 } else { value };
        set(switch.file, value)
            .with_context(|| format!("the kernel does not take {value} for {}", switch.name))?;
        tuning.undo.push((switch.file, own));
    }
    if let Some(list) = &variant.preferred {
        fs::write(PREFERRED, list).with_context(|| {
            format!("this kernel does not take {list} as its preferred CPUs: `--kernel patched` boots one that does")
        })?;
        tuning.undo.push((PREFERRED, "\n".into()));
    }
    Ok(tuning)
}

/// Whether a parameter is one of a module that is on or off.
fn is_bool(text: &str) -> bool {
    matches!(text.trim(), "Y" | "N")
}

/// Writes a number; the kernel wraps one that is too long for it, and says nothing.
fn set(file: &str, value: u64) -> Result<()> {
    fs::write(file, value.to_string())?;
    let now = fs::read_to_string(file)?;
    // What is Y or N there has no number.
    ensure!(
        now.trim().parse().is_ok_and(|taken: u64| taken == value) || is_bool(&now),
        "it takes it for {}",
        now.trim()
    );
    Ok(())
}

fn opposite(feature: &str) -> String {
    feature.strip_prefix("NO_").map_or_else(|| format!("NO_{feature}"), str::to_string)
}

impl Drop for Tuning {
    fn drop(&mut self) {
        for (file, value) in self.undo.drain(..).rev() {
            if let Err(e) = fs::write(file, value) {
                log::warn!("cannot put {file} back: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn features_are_undone_by_their_opposite() {
        assert_eq!(super::opposite("NEXT_BUDDY"), "NO_NEXT_BUDDY");
        assert_eq!(super::opposite("NO_NEXT_BUDDY"), "NEXT_BUDDY");
    }
}
