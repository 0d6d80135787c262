// SPDX-License-Identifier: GPL-2.0-only
//! What a host tells a guest.

use serde::{Deserialize, Serialize};

/// What a guest is told, one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// CPUs that it can have now.
    pub cpus: f64,
    /// For how long that has been so, in ms.
    pub for_ms: u64,
}

impl Told {
    /// Whether this can be: nobody has so many CPUs.
    pub fn is_sound(&self) -> bool {
        (0.0..=65536.0).contains(&self.cpus)
    }
}
