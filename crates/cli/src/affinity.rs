// SPDX-License-Identifier: GPL-2.0-only
//! Where tasks may run.

use crate::cpulist::Cpus;
use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The online CPUs that a task (0: the calling thread) may run on.
///
/// # Errors
/// There is no such task, or the machine may have more CPUs than 1,024.
pub fn of(tid: i32) -> Result<Cpus> {
    Ok(CpuMask::of(tid)?.iter().collect())
}

/// CPUs in one word.
const BITS: usize = u64::BITS as usize;

/// CPUs below 1,024, a bit each: for those who compare the sets of many tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuMask([u64; 1024 / BITS]);

impl CpuMask {
    /// See [`of`].
    ///
    /// # Errors
    /// See [`of`].
    pub fn of(tid: i32) -> Result<CpuMask> {
        let set = sched_getaffinity(Pid::from_raw(tid))
            .with_context(|| format!("cannot read where task {tid} may run"))?;
        Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are in both.
    pub fn shared(&self, other: &CpuMask) -> usize {
        self.0.iter().zip(&other.0).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Takes those of another in.
    pub fn add(&mut self, other: &CpuMask) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * BITS).filter(|cpu| self.0[cpu / BITS] >> (cpu % BITS) & 1 == 1)
    }
}

/// Those from 1,024 on are left out.
impl FromIterator<usize> for CpuMask {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> CpuMask {
        let mut mask = CpuMask::default();
        for cpu in cpus {
            if let Some(word) = mask.0.get_mut(cpu / BITS) {
                *word |= 1 << (cpu % BITS);
            }
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_sets_of_cpus() {
        let mut mask: CpuMask = [0, 63, 64, 1023, 1024].into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 63, 64, 1023]);
        let other: CpuMask = (60..70).collect();
        assert_eq!((mask.len(), mask.shared(&other), other.shared(&mask)), (4, 2, 2));
        mask.add(&other);
        assert_eq!((mask.len(), mask.shared(&other), mask.is_empty()), (12, 10, false));
        assert!(CpuMask::default().is_empty());
    }
}
