// SPDX-License-Identifier: GPL-2.0-only
//! A container with the host's processes has a view of its own of their cgroups: paths in `/proc/PID/cgroup` begin with `/..`,
//! and no pattern for a class would fit.

use anyhow::Result;
use nix::sched::{CloneFlags, setns};
use std::fs::{self, File};

/// Takes the host's view of cgroups, for this thread and those that it begins; says why it cannot. Where processes are this
/// container's own, so are their cgroups.
pub fn see_whole_cgroups() {
    let ours = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    if !is_apart(&ours) {
        return;
    }
    let take = || -> Result<()> { Ok(setns(File::open("/proc/1/ns/cgroup")?, CloneFlags::CLONE_NEWCGROUP)?) };
    if let Err(why) = take() {
        log::warn!(
            "patterns with `cgroup:` fit no VM in this container ({why}): give it the host's cgroup namespace"
        );
    }
}

/// Whether the cgroups of init lie outside of this process' namespace.
fn is_apart(cgroups: &str) -> bool {
    let mut paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.any(|path| path.starts_with("/.."))
}

#[cfg(test)]
mod tests {
    use super::is_apart;

    #[test]
    fn the_hosts_init_tells_whose_view_it_is() {
        assert!(is_apart("0::/../../init.scope\n"));
        for own in ["0::/init.scope\n", "0::/\n", "1:cpu:/a/..b\n0::/\n", ""] {
            assert!(!is_apart(own), "{own}");
        }
    }
}
