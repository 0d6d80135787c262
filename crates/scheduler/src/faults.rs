// SPDX-License-Identifier: GPL-2.0-only
//! Faults of kernels that matter to whoever loads a sched_ext scheduler, by their releases.
//!
//! The CVEs' records, and no other place here, say which releases have a fault. Left out are those that no scheduler of ours
//! can meet (of `SCX_KICK_WAIT`, sub-schedulers, `ops.dequeue()` that walks queues), and those that only warn.

/// Series and patch level.
pub type Release = ((u32, u32), u32);

/// A fault.
#[derive(Debug)]
pub struct Fault {
    /// Its record.
    pub cve: &'static str,
    /// What happens, as a part of a sentence.
    what: &'static str,
    /// The first series that has it.
    first: (u32, u32),
    /// The first series that never had it.
    mended: (u32, u32),
    /// Series before that were mended, from which patch level on.
    mended_from: &'static [Release],
    /// What to do beside booting another kernel.
    meanwhile: &'static str,
}

/// All that are known, those that hang a machine first.
pub const FAULTS: [Fault; 5] = [
    // The thread that enables a scheduler is taken over like all others, and then waits behind those that are not: see
    // crate::urgent.
    Fault {
        cve: "CVE-2026-43392",
        what: "while a sched_ext scheduler is loaded, a busy machine can hang",
        first: (6, 12),
        mended: (7, 0),
        mended_from: &[((6, 12), 78), ((6, 18), 20), ((6, 19), 9)],
        meanwhile: "load none where a hang matters",
    },
    // Whoever ends a scheduler may be preempted before it has said so, and then nobody dispatches any more.
    Fault {
        cve: "CVE-2026-43482",
        what: "when a sched_ext scheduler ends or is thrown out, the machine can hang",
        first: (6, 12),
        mended: (7, 0),
        mended_from: &[((6, 12), 78), ((6, 18), 20), ((6, 19), 9)],
        meanwhile: "stop none where a hang matters",
    },
    Fault {
        cve: "CVE-2025-21897",
        what: "a sched_ext scheduler can deadlock the machine while it runs",
        first: (6, 12),
        mended: (6, 14),
        mended_from: &[((6, 12), 18), ((6, 13), 6)],
        meanwhile: "load none",
    },
    // The setters of cpu.weight, cpu.idle and cpu.max.
    Fault {
        cve: "CVE-2026-46154",
        what: "a write to cpu.weight or cpu.max while one sched_ext scheduler gives way to another can crash the machine",
        first: (6, 18),
        mended: (7, 1),
        mended_from: &[((6, 18), 32), ((7, 0), 7)],
        meanwhile: "start no VM and change no limit while a scheduler is loaded or replaced",
    },
    // Of an error path only: groups that cannot be set up at a load.
    Fault {
        cve: "CVE-2026-43438",
        what: "a load of a sched_ext scheduler that fails can corrupt the kernel's groups",
        first: (6, 12),
        mended: (7, 0),
        mended_from: &[((6, 12), 78), ((6, 18), 19), ((6, 19), 9)],
        meanwhile: "load none where memory is short",
    },
];

impl Fault {
    /// Whether the kernel of this series and patch level has it.
    fn is_in(&self, (series, patch): Release) -> bool {
        let mended = self.mended_from.iter().any(|(of, from)| *of == series && patch >= *from);
        (self.first..self.mended).contains(&series) && !mended
    }

    /// One sentence: what it is, and what to do.
    pub fn describe(&self) -> String {
        let (major, minor) = self.mended;
        let older: Vec<String> = self
            .mended_from
            .iter()
            .map(|((major, minor), patch)| format!("{major}.{minor}.{patch}"))
            .collect();
        format!(
            "{}, unless the kernel's distribution has mended it: {}; boot {major}.{minor} or later (or {} or later of \
             these series), or {} (docs/troubleshooting.md)",
            self.cve,
            self.what,
            older.join(", "),
            self.meanwhile
        )
    }
}

/// Faults of the kernel of this release (`uname -r`).
///
/// A distribution may have mended them on its own, which a release does not tell.
pub fn of(release: &str) -> Vec<&'static Fault> {
    let Some(release) = parse(release) else { return Vec::new() };
    FAULTS.iter().filter(|fault| fault.is_in(release)).collect()
}

/// The first kernel of which it is known that a CPU can go offline under any sched_ext scheduler (CVE-2026-99085: tasks that
/// wait in a scheduler's own queues keep a CPU from going). Which earlier ones have the mend is not known here.
const HOTPLUG_MENDED: (u32, u32) = (7, 4);

/// What to know of CPUs that go offline, on a kernel of this release; nothing if there is nothing to know.
pub fn hotplug(release: &str) -> Option<String> {
    let (series, _) = parse(release)?;
    ((6, 12)..HOTPLUG_MENDED).contains(&series).then(|| {
        "CVE-2026-99085, unless this kernel has mended it: a CPU that is taken offline while a sched_ext scheduler is \
         loaded may never go, and hold up all that waits for it; stop the scheduler before, and wait a minute (docs/host.md)"
            .into()
    })
}

/// Series and patch level; a release without one is the first of its series.
pub fn parse(release: &str) -> Option<Release> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    let mut numbers = release[..end].split('.').map(str::parse::<u32>);
    let (Ok(major), Ok(minor)) = (numbers.next()?, numbers.next()?) else { return None };
    Some(((major, minor), numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cves(release: &str) -> Vec<&'static str> {
        of(release).iter().map(|fault| fault.cve).collect()
    }

    #[test]
    fn releases_with_the_fault_at_load_are_known() {
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
            assert!(cves(bad).contains(&"CVE-2026-43392") && cves(bad).contains(&"CVE-2026-43482"), "{bad}");
        }
        for good in
            ["6.1.0-49-amd64", "6.11.9", "6.12.78", "6.18.44-x", "7.0.7", "7.1", "7.3.0+deb14", "x", ""]
        {
            assert!(cves(good).is_empty(), "{good}: {:?}", cves(good));
        }
    }

    /// The edges of each record.
    #[test]
    fn each_fault_ends_where_its_record_says() {
        for (release, has, lacks) in [
            ("6.12.17", "CVE-2025-21897", ""),
            ("6.12.18", "CVE-2026-43392", "CVE-2025-21897"),
            ("6.13.5", "CVE-2025-21897", ""),
            ("6.14.0", "CVE-2026-43392", "CVE-2025-21897"),
            ("6.17.9", "CVE-2026-43392", "CVE-2026-46154"),
            ("6.18.18", "CVE-2026-43438", ""),
            ("6.18.19", "CVE-2026-43392", "CVE-2026-43438"),
            ("6.18.20", "CVE-2026-46154", "CVE-2026-43392"),
            ("6.18.31", "CVE-2026-46154", ""),
            ("6.18.32", "", "CVE-2026-46154"),
            ("6.19.9", "CVE-2026-46154", "CVE-2026-43392"),
            ("7.0.6", "CVE-2026-46154", "CVE-2026-43482"),
            ("7.0.7", "", "CVE-2026-46154"),
        ] {
            let found = cves(release);
            assert!(has.is_empty() || found.contains(&has), "{release}: {found:?}");
            assert!(!found.contains(&lacks), "{release}: {found:?}");
        }
    }

    #[test]
    fn each_is_one_sentence_that_names_every_release_to_boot() {
        for fault in &FAULTS {
            let note = fault.describe();
            assert!(note.starts_with(fault.cve) && !note.contains('\n') && !note.ends_with('.'), "{note}");
            assert!(note.contains(&format!("boot {}.{}", fault.mended.0, fault.mended.1)), "{note}");
            for ((major, minor), patch) in fault.mended_from {
                assert!(note.contains(&format!("{major}.{minor}.{patch}")), "{note}");
            }
        }
    }

    #[test]
    fn docs_name_every_fault() {
        let docs = include_str!("../../../docs/troubleshooting.md");
        for cve in FAULTS.iter().map(|fault| fault.cve).chain(["CVE-2026-99085"]) {
            assert!(docs.contains(cve), "docs/troubleshooting.md does not name {cve}");
        }
    }

    #[test]
    fn hotplug_is_noted_where_it_can_hang() {
        for (release, noted) in
            [("6.11.2", false), ("6.12.90", true), ("7.3.4+deb13", true), ("7.4.0", false), ("x", false)]
        {
            assert_eq!(hotplug(release).is_some(), noted, "{release}");
        }
    }
}
