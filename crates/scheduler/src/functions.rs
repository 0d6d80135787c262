// SPDX-License-Identifier: GPL-2.0-only
//! Functions that programs can be attached to.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Whether the kernel or a module of it has all these functions; it counts as such where nobody can tell.
pub fn are_there(names: &[&str]) -> bool {
    let Ok(file) = File::open("/proc/kallsyms") else { return true };
    let mut missing = names.to_vec();
    if missing.is_empty() {
        return true;
    }
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        // Address, kind, name, and the module in brackets.
        let name = line.split_whitespace().nth(2).unwrap_or_default();
        missing.retain(|wanted| *wanted != name);
        if missing.is_empty() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn they_are_looked_up() {
        assert!(!are_there(&["no_kernel_has_this"]) || !Path::new("/proc/kallsyms").exists());
        assert!(are_there(&[]));
    }
}
