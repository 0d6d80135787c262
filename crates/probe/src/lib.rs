// SPDX-License-Identifier: GPL-2.0-only
//! Read-only probes on KVM: what it does about spinning vCPUs, per VM.
//!
//! They work on any stock kernel with BTF, under any scheduler, and change nothing.

mod exits;
mod forbidden;

use anyhow::{Context, Error, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use exits::exit_name;

#[allow(clippy::all, clippy::pedantic, missing_docs, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/kvm.skel.rs"));
}

/// What KVM did for one VM since the probes were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmCounts {
    /// Exits by name of their reason (see [`exit_name`]).
    pub exits: BTreeMap<String, u64>,
    /// Calls of `kvm_vcpu_on_spin`.
    pub on_spin: u64,
    /// Calls of `yield_to`.
    pub yield_tried: u64,
    /// Calls of `yield_to` that gave way (result above zero).
    pub yield_ok: u64,
    /// Tried ones whose target was on the yielder's own runqueue.
    pub yield_same_rq: u64,
    /// Tried ones whose target was on another runqueue.
    pub yield_other_rq: u64,
}

/// How long one vCPU thread has spun since the probes were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinTime {
    /// Exits that KVM took for spinning.
    pub spins: u64,
    /// Time between such exits that followed each other at once.
    pub spin_ns: u64,
}

/// Attached probes; detached when dropped.
pub struct Probe {
    skel: skeleton::KvmSkel<'static>,
}

impl Probe {
    /// Loads and attaches the probes. The kvm module must be loaded.
    ///
    /// # Errors
    /// The kernel has no BTF, no kvm module, or the caller is not root; the message says what to do.
    pub fn attach() -> Result<Probe> {
        Probe::load(false)
    }

    /// As [`Probe::attach`], but instead of exits it measures how long threads spin ([`Probe::spin_times`]): exits no
    /// further apart than `gap_ns` are one spin. The hardware's window, an exit and some room: 20,000 on silicon.
    ///
    /// # Errors
    /// As [`Probe::attach`].
    pub fn attach_with_spin_times(gap_ns: u64) -> Result<Probe> {
        let mut probe = Probe::load(true)?;
        probe.skel.maps.data_data.as_deref_mut().context("the probes have no settings")?.spin_gap_ns = gap_ns;
        Ok(probe)
    }

    fn load(spin_times: bool) -> Result<Probe> {
        quiet();
        // The skeleton borrows its object for life. A program attaches probes once, so that life is the
        // program's: 40 bytes are not given back.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skel = skeleton::KvmSkelBuilder::default()
            .open(object)
            .and_then(|mut open| {
                open.progs.spin_time.set_autoload(spin_times);
                // Other architectures' events look otherwise.
                open.progs.vm_exit.set_autoload(cfg!(target_arch = "x86_64") && !spin_times);
                open.load()
            })
            .map_err(|e| refusal(e.into(), || why_refused(Path::new("/sys"), is_root())))?;
        skel.attach()
            .map_err(|e| refusal(e.into(), || "the KVM probes cannot be attached: is tracefs mounted?"))?;
        Ok(Probe { skel })
    }

    /// Spinning by thread; empty without [`Probe::attach_with_spin_times`].
    ///
    /// # Errors
    /// The kernel cannot read its own maps.
    pub fn spin_times(&self) -> Result<BTreeMap<i32, SpinTime>> {
        let spins = &self.skel.maps.spins;
        let mut all = BTreeMap::new();
        for key in spins.keys() {
            let Some(value) = spins.lookup(&key, MapFlags::ANY)? else { continue };
            let word = |i: usize| value[8 * i..][..8].try_into().map_or(0, u64::from_ne_bytes);
            all.insert(word32(&key, 0) as i32, SpinTime { spins: word(0), spin_ns: word(1) });
        }
        Ok(all)
    }

    /// Makes room for VMs to come: these have gone.
    ///
    /// # Errors
    /// The kernel cannot read its own maps.
    pub fn forget(&self, pids: &[i32]) -> Result<()> {
        let maps = &self.skel.maps;
        for map in [&maps.vms, &maps.exits] {
            for key in map.keys().filter(|key| pids.contains(&(word32(key, 0) as i32))) {
                map.delete(&key)?;
            }
        }
        Ok(())
    }

    /// Counts per VM, by the process id of its vCPU threads.
    ///
    /// # Errors
    /// The kernel cannot read its own maps.
    pub fn read(&self) -> Result<BTreeMap<i32, VmCounts>> {
        let mut all: BTreeMap<i32, VmCounts> = BTreeMap::new();
        let vms = &self.skel.maps.vms;
        for key in vms.keys() {
            let Some(sum) = vms.lookup_percpu(&key, MapFlags::ANY)?.map(|rows| sum_words(&rows)) else {
                continue;
            };
            let counts = all.entry(word32(&key, 0) as i32).or_default();
            let [on_spin, tried, ok, same, other] = sum[..] else { continue };
            (counts.on_spin, counts.yield_tried, counts.yield_ok) = (on_spin, tried, ok);
            (counts.yield_same_rq, counts.yield_other_rq) = (same, other);
        }
        let isa = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.isa);
        let exits = &self.skel.maps.exits;
        for key in exits.keys() {
            let Some(sum) = exits.lookup_percpu(&key, MapFlags::ANY)?.map(|rows| sum_words(&rows)) else {
                continue;
            };
            let counts = all.entry(word32(&key, 0) as i32).or_default();
            *counts.exits.entry(exit_name(isa, word32(&key, 4))).or_default() += sum[0];
        }
        Ok(all)
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The kernel's error with its cause: who forbids probes to root, or else what `otherwise` finds.
fn refusal(error: Error, otherwise: impl Fn() -> &'static str) -> Error {
    if is_root() && forbidden::is(&error) {
        return Error::msg(forbidden::why());
    }
    error.context(otherwise())
}

/// The likeliest reason why the kernel takes no probes.
fn why_refused(sys: &Path, root: bool) -> &'static str {
    let kvm = sys.join("module/kvm");
    if !root {
        "KVM's probes need root"
    } else if !sys.join("kernel/btf/vmlinux").exists() {
        "KVM's probes need a kernel with BTF (CONFIG_DEBUG_INFO_BTF)"
    } else if !kvm.exists() {
        "there is no kvm to probe"
    } else if kvm.join("initstate").exists() && !sys.join("kernel/btf/kvm").exists() {
        "KVM's probes need a kvm module with BTF (CONFIG_DEBUG_INFO_BTF_MODULES)"
    } else {
        "the kernel refuses KVM's probes, although BTF and kvm are there"
    }
}

/// libbpf prints whole verifier logs at failures; they are for `-v` only.
fn quiet() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, text| log::debug!("{}", text.trim_end()))));
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Adds the CPUs' rows of 64-bit words.
fn sum_words(rows: &[Vec<u8>]) -> Vec<u64> {
    let words = rows.first().map_or(0, |row| row.len() / 8);
    let word = |row: &[u8], i: usize| row[i * 8..][..8].try_into().map_or(0, u64::from_ne_bytes);
    (0..words).map(|i| rows.iter().map(|row| word(row, i)).sum()).collect()
}

impl std::ops::Sub<&VmCounts> for &VmCounts {
    type Output = VmCounts;

    /// What happened since `earlier`.
    fn sub(self, earlier: &VmCounts) -> VmCounts {
        let exits = self.exits.iter().filter_map(|(name, count)| {
            let more = count - earlier.exits.get(name).copied().unwrap_or(0).min(*count);
            (more > 0).then(|| (name.clone(), more))
        });
        VmCounts {
            exits: exits.collect(),
            on_spin: self.on_spin.saturating_sub(earlier.on_spin),
            yield_tried: self.yield_tried.saturating_sub(earlier.yield_tried),
            yield_ok: self.yield_ok.saturating_sub(earlier.yield_ok),
            yield_same_rq: self.yield_same_rq.saturating_sub(earlier.yield_same_rq),
            yield_other_rq: self.yield_other_rq.saturating_sub(earlier.yield_other_rq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_cpus_are_added() {
        let row = |a: u64, b: u64| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        assert_eq!(sum_words(&[row(1, 2), row(10, 20)]), [11, 22]);
        assert!(sum_words(&[]).is_empty());
    }

    #[test]
    fn a_refusal_names_what_is_missing() {
        let sys = std::env::temp_dir().join(format!("overbook-probe-{}", std::process::id()));
        let make = |path: &str| fs::create_dir_all(sys.join(path)).unwrap();
        let why = |root| why_refused(&sys, root);
        assert!(why(false).contains("root"));
        assert!(why(true).contains("CONFIG_DEBUG_INFO_BTF)"));
        make("kernel/btf/vmlinux");
        assert!(why(true).contains("no kvm"));
        make("module/kvm");
        assert!(why(true).contains("BTF and kvm are there"));
        make("module/kvm/initstate");
        assert!(why(true).contains("BTF_MODULES"));
        make("kernel/btf/kvm");
        assert!(why(true).contains("BTF and kvm are there"));
        fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn differences_keep_only_what_happened() {
        let exits = |n| BTreeMap::from([("pause".to_string(), n), ("hlt".to_string(), 4)]);
        let earlier = VmCounts { exits: exits(1), on_spin: 5, ..VmCounts::default() };
        let later = VmCounts { exits: exits(3), on_spin: 9, ..VmCounts::default() };
        let more = &later - &earlier;
        assert_eq!(more.exits, BTreeMap::from([("pause".to_string(), 2)]));
        assert_eq!(more.on_spin, 4);
    }
}
