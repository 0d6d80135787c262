// SPDX-License-Identifier: GPL-2.0-only
//! The wind tunnel: the scheduler's own BPF sources, compiled natively, on modelled hosts of up to 1,024 CPUs.
//!
//! * [`model`]: the native half: sched_ext and KVM as far as the scheduler sees them (`native/*.c`), with the scheduler.
//! * [`world`]: hosts, time and events; what runs on which CPU, and what it costs.
//! * [`guest`]: what vCPUs do: compute, lock, spin, halt, interrupt each other.
//! * [`fluid`]: what everybody is entitled to, computed apart from any scheduler.
//! * [`fuzz`]: random small hosts with all that can happen to them.
//! * [`scene`]: scenario files. [`show`], [`picture`]: what people see. [`agree`]: the lab's figures beside the tunnel's.
//! * [`replay`]: hosts whose vCPUs want what a recording says.
//! * [`check`]: what must hold while a host runs. [`report`]: what it has done.
//!
//! `docs/tunnel.md` says what is modelled and what is not.

pub mod agree;
mod changes;
pub mod check;
pub mod compile;
pub mod costs;
mod events;
pub mod fluid;
pub mod fuzz;
pub mod gauntlet;
pub mod guest;
mod host;
pub mod model;
mod ops;
mod outside;
pub mod picture;
pub mod replay;
pub mod report;
pub mod scene;
pub mod show;
pub mod trace;
mod vcpu;
pub mod world;

pub use guest::{Pattern, VmSpec};
pub use report::Report;
pub use world::{Change, Host, Kind, TaskSpec, World};
