// SPDX-License-Identifier: GPL-2.0-only
//! Reports of the lab: the schema, what the figures mean together, and how they are shown.
//!
//! * [`schema`]: the JSON form of a run. * [`stats`]: medians, spread, ranges. * [`summary`]: rows for all
//!   renderings. * [`loads`]: several scenarios side by side. * [`table`], [`html`], [`markdown`]: the renderings. * [`columns`], [`mod@format`], [`plot`]: what they
//!   are made of.
//! * [`compare`]: two reports. * [`json`]: files.

pub mod bars;
pub mod columns;
pub mod compare;
pub mod format;
pub mod html;
pub mod json;
pub mod lines;
pub mod loads;
pub mod markdown;
pub mod plot;
pub mod schema;
pub mod stats;
pub mod summary;
pub mod table;

pub use schema::Report;
