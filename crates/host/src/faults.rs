// SPDX-License-Identifier: GPL-2.0-only
//! Kernels that loading a scheduler can hang (CVE-2026-43392), by their releases.
//!
//! The thread that enables a sched_ext scheduler is taken over like all others, and then waits behind those that are
//! not: see [`crate::urgent`]. The CVE's record, and no other place here, says which releases are mended.

/// The first release with sched_ext, and with the fault.
const FIRST: (u32, u32) = (6, 12);

/// The first series without it.
const MENDED: (u32, u32) = (7, 0);

/// Series before that were mended, from which patch level on.
const MENDED_FROM: [((u32, u32), u32); 3] = [((6, 12), 78), ((6, 18), 20), ((6, 19), 9)];

/// What to know and do if the kernel of this release (`uname -r`) has the fault.
///
/// A distribution may have mended it on its own, which a release does not tell.
pub fn hangs_at_load(release: &str) -> Option<&'static str> {
    let (series, patch) = parse(release)?;
    let mended = MENDED_FROM.iter().any(|(of, from)| *of == series && patch >= *from);
    ((FIRST..MENDED).contains(&series) && !mended).then_some(
        "this kernel has a fault, CVE-2026-43392, unless its distribution has mended it: while a sched_ext scheduler \
         is loaded, a busy machine can hang; boot 7.0 or later (or 6.12.78, 6.18.20, 6.19.9 or later of these series), \
         or load none where a hang matters (docs/troubleshooting.md)",
    )
}

/// Series and patch level; a release without one is the first of its series.
fn parse(release: &str) -> Option<((u32, u32), u32)> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    let mut numbers = release[..end].split('.').map(str::parse::<u32>);
    let (Ok(major), Ok(minor)) = (numbers.next()?, numbers.next()?) else { return None };
    Some(((major, minor), numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_with_the_fault_are_known() {
        for bad in [
            "6.12",
            "6.12.77",
            "6.12.0-55.el10.x86_64",
            "6.13.12",
            "6.17.0-14-generic",
            "6.18.0-rc1",
            "6.18.15+deb13-cloud-amd64",
            "6.18.19",
            "6.19.8-1-default",
        ] {
            assert!(hangs_at_load(bad).is_some(), "{bad}");
        }
        for good in [
            "6.1.0-49-amd64",
            "6.11.9",
            "6.12.78",
            "6.18.20",
            "6.18.44-x",
            "6.19.9",
            "7.0",
            "7.3.0+deb14",
            "x",
            "",
        ] {
            assert_eq!(hangs_at_load(good), None, "{good}");
        }
    }

    #[test]
    fn the_note_names_the_fault_and_every_release_to_boot() {
        let note = hangs_at_load("6.18.15").unwrap();
        assert!(note.contains("CVE-2026-43392") && note.contains(&format!("boot {}.{}", MENDED.0, MENDED.1)));
        for ((major, minor), patch) in MENDED_FROM {
            assert!(note.contains(&format!("{major}.{minor}.{patch}")), "{note}");
        }
    }
}
