// SPDX-License-Identifier: GPL-2.0-only
//! The machine that measures: what it is, how exact it is, and what its tasks and CPUs did.

pub mod describe;
pub mod instrument;

pub mod shape;
pub mod switches;
pub mod task;
