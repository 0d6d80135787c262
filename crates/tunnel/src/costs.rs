// SPDX-License-Identifier: GPL-2.0-only
//! What decisions cost: per call of each operation and program, on hosts of several sizes. The unit of cost is what does
//! not depend on the computer: calls of helpers and kfuncs, atomics, locks, tasks passed over in queues, and writes to
//! lines that another CPU had written last. Lines are counted only by an object whose sources were compiled with
//! [`FLAGS`].

use crate::check::Bounds;
use crate::guest::{Pattern, VmSpec};
use crate::model::{Cost, SharedLine};
use crate::world::{Host, World};
use anyhow::Result;

/// What makes clang tell the model of every store of the scheduler's sources.
pub const FLAGS: &[&str] = &["-fsanitize-coverage=func,trace-stores"];

/// A host whose costs are counted: VMs of all kinds by turns.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Name in tables.
    pub name: &'static str,
    /// CPUs, and LLCs.
    pub cpus: u32,
    /// See `cpus`.
    pub llcs: u32,
    /// VMs.
    pub vms: u32,
    /// vCPUs of each.
    pub vcpus: u32,
    /// ms that are counted, after as many that are not.
    pub ms: u64,
}

/// Twice as many vCPUs as CPUs, in four VMs of a size; and a large host.
pub const SIZES: &[Size] = &[
    Size { name: "4-vcpus", cpus: 8, llcs: 1, vms: 4, vcpus: 4, ms: 400 },
    Size { name: "16-vcpus", cpus: 32, llcs: 1, vms: 4, vcpus: 16, ms: 100 },
    Size { name: "64-vcpus", cpus: 128, llcs: 2, vms: 4, vcpus: 64, ms: 30 },
    Size { name: "256-vcpus", cpus: 512, llcs: 4, vms: 4, vcpus: 256, ms: 10 },
    Size { name: "2000-on-256", cpus: 256, llcs: 4, vms: 250, vcpus: 8, ms: 20 },
];

/// Runs a host on an object, and says what its callbacks cost and which lines they share.
///
/// # Errors
/// The object cannot be loaded, or the scheduler refuses the host.
pub fn measure(size: &Size, object: Vec<u8>) -> Result<(Vec<Cost>, Vec<SharedLine>)> {
    const PATTERNS: [Pattern; 4] = [Pattern::Lock, Pattern::Ipi, Pattern::Messages, Pattern::Compute];
    let bounds = Bounds { wait_ns: None, idle_ns: None, share: None, booked: false };
    let object = Some(object);
    let host = Host { cpus: size.cpus, llcs: size.llcs, bounds, object, ..Host::default() };
    let mut world = World::new(host)?;
    for vm in 0..size.vms {
        let pattern = PATTERNS[vm as usize % PATTERNS.len()];
        // As libvirt does it.
        let group = Some(world.group(0, 100));
        world.vm(VmSpec {
            group,
            groups_below: size.vcpus,
            ..VmSpec::new(&format!("vm{vm}"), size.vcpus, pattern)
        });
    }
    let ns = size.ms * 1_000_000;
    world.run(ns);
    world.count_costs(true);
    world.run(2 * ns);
    let (mut costs, mut lines) = (world.model.costs(), world.model.shared_lines());
    costs.sort_by(|a, b| a.name.cmp(&b.name));
    lines.sort_by(|a, b| (&a.callback, &a.name).cmp(&(&b.callback, &b.name)));
    Ok((costs, lines))
}
