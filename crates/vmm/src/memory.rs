// SPDX-License-Identifier: GPL-2.0-only
//! Guest memory as a memfd, written before the guest runs and read while it runs.

use crate::abi;
use crate::load::Load;
use anyhow::{Context, Result, anyhow};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

const PAGE_PRESENT_RW_USER: u64 = 0x7;
const PAGE_LARGE: u64 = 0x80;
const LARGE_PAGE: u64 = 2 << 20;

/// The memory of one VM. Dropping it does not end the VM.
pub struct GuestMemory {
    file: File,
    size: u64,
    map: GuestMemoryMmap,
}

/// Where the guest's image wants to be entered.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// First instruction of every vCPU.
    pub rip: u64,
    /// First interrupt stub.
    pub stubs: u64,
}

/// Counters of one vCPU since its start.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Units of work.
    pub work: u64,
    /// PAUSE loop turns.
    pub spins: u64,
    /// Interrupts handled.
    pub interrupts: u64,
    /// Steal time that KVM reported, nanoseconds.
    pub steal_ns: u64,
    /// Wait-time histogram in TSC ticks; see [`bucket_upper_ticks`].
    pub wait_buckets: Vec<u64>,
    /// What went wrong, if the guest stopped itself.
    pub fault: Option<String>,
}

/// Upper bound (inclusive, in ticks) of a wait-time bucket.
pub fn bucket_upper_ticks(bucket: usize) -> u64 {
    let sub = abi::OB_HIST_SUB as usize;
    if bucket < sub {
        return bucket as u64;
    }
    let octave = bucket / sub + 3;
    let width = 1u64 << (octave - 4);
    (1u64 << octave) + (bucket % sub) as u64 * width + width - 1
}

impl GuestMemory {
    /// Memory for `vcpus` vCPUs, filled with the guest's image, page tables, descriptors and parameters.
    ///
    /// # Errors
    /// More than 256 vCPUs or none, or no memory.
    pub fn create(load: &Load, vcpus: u32, seed: u64, ns_per_turn: f64, stretch: f64) -> Result<GuestMemory> {
        if vcpus == 0 || vcpus > abi::OB_MAX_VCPUS {
            return Err(anyhow!("a micro-guest has 1 to {} vCPUs, not {vcpus}", abi::OB_MAX_VCPUS));
        }
        let size = (area(vcpus)).next_multiple_of(LARGE_PAGE);
        // SAFETY: the name is a C string, and the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(c"overbook-guest".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot create guest memory");
        }
        // SAFETY: `fd` was just opened and nobody else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size).context("cannot size guest memory")?;
        let memory = GuestMemory::map(file, size)?;
        memory.write_image()?;
        memory.write_tables()?;
        memory.map.write_obj(
            Raw(load.params(vcpus, seed, ns_per_turn, stretch)),
            GuestAddress(abi::OB_PARAMS.into()),
        )?;
        for index in 0..vcpus {
            let mut state = seed ^ (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^= state >> 31;
            memory.map.write_obj(state | 1, memory.field(index, std::mem::offset_of!(abi::ob_vcpu, rng)))?;
            memory.map.write_obj(index, memory.field(index, std::mem::offset_of!(abi::ob_vcpu, index)))?;
        }
        Ok(memory)
    }

    /// Maps memory that another process made, by its path under /proc.
    ///
    /// # Errors
    /// The path cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<GuestMemory> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open guest memory {}", path.display()))?;
        let size = file.metadata()?.len();
        GuestMemory::map(file, size)
    }

    fn map(file: File, size: u64) -> Result<GuestMemory> {
        let offset = FileOffset::new(file.try_clone()?, 0);
        let region = MmapRegion::from_file(offset, size as usize).context("cannot map guest memory")?;
        let region = GuestRegionMmap::new(region, GuestAddress(0)).context("guest memory wraps around")?;
        Ok(GuestMemory { file, size, map: GuestMemoryMmap::from_regions(vec![region])? })
    }

    /// A path by which another process of the same user opens this memory while this one lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Bytes of memory.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn map_ref(&self) -> &GuestMemoryMmap {
        &self.map
    }

    fn field(&self, vcpu: u32, offset: usize) -> GuestAddress {
        GuestAddress(area(vcpu) + offset as u64)
    }

    fn write_image(&self) -> Result<()> {
        let elf = object::File::parse(abi::GUEST_ELF)?;
        for segment in elf.segments() {
            self.map.write_slice(segment.data()?, GuestAddress(segment.address()))?;
        }
        Ok(())
    }

    /// Where to enter the image, and its interrupt stubs.
    pub(crate) fn entry() -> Result<Entry> {
        let elf = object::File::parse(abi::GUEST_ELF)?;
        let symbol = |name: &str| {
            let found = elf.symbols().find(|s| s.name() == Ok(name));
            found.map(|s| s.address()).ok_or_else(|| anyhow!("the guest image has no symbol {name}"))
        };
        Ok(Entry { rip: elf.entry(), stubs: symbol("ob_isr_stubs")? })
    }

    fn write_tables(&self) -> Result<()> {
        let put = |at: u64, value: u64| self.map.write_obj(value, GuestAddress(at));
        put(abi::OB_PML4.into(), u64::from(abi::OB_PDPT) | PAGE_PRESENT_RW_USER)?;
        put(abi::OB_PDPT.into(), u64::from(abi::OB_PD) | PAGE_PRESENT_RW_USER)?;
        for page in 0..512 {
            put(u64::from(abi::OB_PD) + page * 8, (page * LARGE_PAGE) | PAGE_PRESENT_RW_USER | PAGE_LARGE)?;
        }
        for (slot, descriptor) in DESCRIPTORS.iter().enumerate() {
            put(u64::from(abi::OB_GDT) + slot as u64 * 8, *descriptor)?;
        }
        let stubs = GuestMemory::entry()?.stubs;
        for vector in 0..256u64 {
            let handler = stubs + vector * abi::STUB_SIZE;
            // A present 64-bit interrupt gate of ring 0.
            let low = (handler & 0xffff)
                | u64::from(abi::OB_SELECTOR_CODE) << 16
                | 0x8e00 << 32
                | (handler >> 16 & 0xffff) << 48;
            put(u64::from(abi::OB_IDT) + vector * 16, low)?;
            put(u64::from(abi::OB_IDT) + vector * 16 + 8, handler >> 32)?;
        }
        Ok(())
    }

    /// vCPUs that have come up and take interrupts.
    ///
    /// # Errors
    /// The memory is not a guest's.
    pub fn online(&self) -> Result<u32> {
        let offset = std::mem::offset_of!(abi::ob_shared, online) as u64;
        Ok(self.map.read_obj(GuestAddress(u64::from(abi::OB_SHARED) + offset))?)
    }

    /// The counters of one vCPU. The guest may be running: words are whole, but not of one instant.
    ///
    /// # Errors
    /// `vcpu` lies outside of this memory.
    pub fn counters(&self, vcpu: u32) -> Result<Counters> {
        let Raw(state): Raw<abi::ob_vcpu> = self.map.read_obj(GuestAddress(area(vcpu)))?;
        let steal_ns: u64 = self.map.read_obj(self.field(vcpu, abi::OB_AREA_STEAL as usize))?;
        Ok(Counters {
            work: state.work,
            spins: state.spins,
            interrupts: state.interrupts,
            steal_ns,
            wait_buckets: state.hist.to_vec(),
            fault: describe_fault(&state),
        })
    }
}

fn describe_fault(state: &abi::ob_vcpu) -> Option<String> {
    match state.fault_vector >> 32 {
        0 => None,
        1 => Some(format!(
            "guest exception {} (error {:#x}) at {:#x}, cr2 {:#x}",
            state.fault_vector & 0xff,
            state.fault_error,
            state.fault_rip,
            state.fault_cr2
        )),
        _ => Some("the guest does not know this pattern".into()),
    }
}

/// Guest-physical address of a vCPU's area.
pub(crate) fn area(vcpu: u32) -> u64 {
    u64::from(abi::OB_AREAS) + u64::from(vcpu) * u64::from(abi::OB_AREA_SIZE)
}

/// Null, ring 0 code and data, ring 3 data and code; the task register is loaded by KVM and needs no entry.
const DESCRIPTORS: [u64; 5] =
    [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00cf_f300_0000_ffff, 0x00af_fb00_0000_ffff];

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw<T>(T);

// SAFETY: both are plain integers without padding that matters: any bytes are a valid value.
unsafe impl vm_memory::ByteValued for Raw<abi::ob_params> {}
// SAFETY: as above.
unsafe impl vm_memory::ByteValued for Raw<abi::ob_vcpu> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guest's own rule (`record_wait`), restated.
    fn bucket_of(ticks: u64) -> usize {
        if ticks < 16 {
            return ticks as usize;
        }
        let octave = 63 - ticks.leading_zeros() as usize;
        (octave - 3) * 16 + (ticks >> (octave - 4) & 15) as usize
    }

    #[test]
    fn buckets_tile_the_line_and_stay_narrow() {
        for bucket in 0..abi::OB_HIST_BUCKETS as usize - 1 {
            let upper = bucket_upper_ticks(bucket);
            assert_eq!(bucket_of(upper), bucket);
            assert_eq!(bucket_of(upper + 1), bucket + 1);
            let width = bucket_upper_ticks(bucket + 1) - upper;
            assert!(width <= 1 || width * 16 <= upper + 1, "bucket {bucket} is {width} wide at {upper}");
        }
    }

    #[test]
    fn image_lies_below_the_shared_area() {
        let elf = object::File::parse(abi::GUEST_ELF).unwrap();
        for segment in elf.segments() {
            assert!(segment.address() >= abi::OB_IMAGE.into());
            assert!(segment.address() + segment.size() <= abi::OB_SHARED.into());
        }
    }

    #[test]
    fn new_memory_holds_parameters_and_zero_counters() {
        let load = Load::new(crate::Pattern::Lock);
        let memory = GuestMemory::create(&load, 3, 7, 2.0, 1.0).unwrap();
        let again = GuestMemory::open(&memory.path()).unwrap();
        let Raw(params): Raw<abi::ob_params> =
            again.map.read_obj(GuestAddress(abi::OB_PARAMS.into())).unwrap();
        assert_eq!((params.vcpus, params.seed), (3, 7));
        assert_eq!(params.critical_turns, 150_000);
        let counters = again.counters(2).unwrap();
        assert_eq!((counters.work, counters.fault), (0, None));
        assert!(again.counters(255).is_err());
        assert!(GuestMemory::create(&load, 257, 7, 2.0, 1.0).is_err());
        assert!(GuestMemory::create(&load, 0, 7, 2.0, 1.0).is_err());
    }
}
