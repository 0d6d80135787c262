// SPDX-License-Identifier: GPL-2.0-only
//! What of this machine's kernel and set-up bears on a scheduler: known faults, quotas, core scheduling, deadline servers.
//! Each is judged by a function of what was found, so that it can be tried without such a machine.

use super::{Line, State, line};
use overbook_scheduler::faults;

/// Names that are listed before the rest is only counted.
const LISTED: usize = 3;

/// Known faults of the kernel of a release, where a scheduler can be loaded.
pub fn known_faults(release: &str, has_sched_ext: bool) -> Vec<Line> {
    if !has_sched_ext {
        return Vec::new();
    }
    let found = faults::of(release);
    let mut lines: Vec<Line> =
        found.iter().map(|fault| line("kernel fault", State::Fault, fault.describe())).collect();
    if lines.is_empty() {
        let text = "none is known that hangs or crashes this kernel's release";
        lines.push(line("kernel fault", State::Ok, text));
    }
    lines.extend(faults::hotplug(release).map(|text| line("CPU hotplug", State::Note, text)));
    lines
}

/// The first few of a list, and how many more there are.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let listed = names[..names.len() - more].join(", ");
    if more > 0 { format!("{listed} and {more} more") } else { listed }
}

/// Groups with a `cpu.max`; `kept` is whether the kernel tells schedulers of it.
pub fn quotas(limited: &[String], kept: bool) -> Line {
    match (limited.len(), kept) {
        (0, _) => line("cpu.max", State::Ok, "no group has a limit"),
        (count, true) => {
            let groups = if count == 1 { "group has a limit" } else { "groups have limits" };
            line(
                "cpu.max",
                State::Ok,
                format!("{count} {groups}, kept under `overbook host`: {}", some(limited)),
            )
        }
        (_, false) => line(
            "cpu.max",
            State::No,
            format!(
                "limits that this kernel (before 6.17) does not tell schedulers of: {}; write max to them, or boot a \
                 later kernel",
                some(limited)
            ),
        ),
    }
}

/// Whether real-time tasks can starve all that a sched_ext scheduler has: `server` says whether the kernel has a deadline
/// server for sched_ext.
pub fn deadline_server(server: bool) -> Line {
    match server {
        true => line("deadline server", State::Ok, "real-time tasks leave sched_ext a part of every CPU"),
        false => line(
            "deadline server",
            State::Note,
            "this kernel has none for sched_ext (7.0 has): a real-time task that never sleeps starves all others of its \
             CPU until the watchdog throws the scheduler out; give such tasks CPUs of their own",
        ),
    }
}

/// Core scheduling: names of the processes that have asked for cores of their own; nothing where the kernel has none.
pub fn core_scheduling(tagged: Option<&[String]>) -> Line {
    match tagged {
        None => line(
            "core scheduling",
            State::Ok,
            "this kernel has none, or SMT is off: no task can ask for a core of its own",
        ),
        Some([]) => line("core scheduling", State::Ok, "nobody asks for cores of its own"),
        Some(names) => line(
            "core scheduling",
            State::No,
            format!(
                "these have cores of their own, and beside that kernels hang or throw the scheduler out: {}; on hosts that \
                 need it stay with EEVDF, else set sched_core = \"none\" in libvirt's qemu.conf and start these VMs anew",
                some(names)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|n| format!("/vm{n}")).collect()
    }

    #[test]
    fn faults_are_noted_where_a_scheduler_can_be_loaded() {
        let found = known_faults("6.18.15+deb13-amd64", true);
        assert!(found.iter().all(|line| (line.state == State::Fault) == (line.what == "kernel fault")));
        for cve in ["CVE-2026-43392", "CVE-2026-43482", "CVE-2026-46154", "CVE-2026-43438", "CVE-2026-99085"]
        {
            assert_eq!(found.iter().filter(|line| line.text.starts_with(cve)).count(), 1, "{cve}");
        }
        assert!(known_faults("6.18.15+deb13-amd64", false).is_empty());
        let newer = known_faults("7.2.13", true);
        assert!(newer[0].state == State::Ok && newer[1].text.contains("offline"), "{}", newer[1].text);
        assert_eq!(known_faults("7.4.1", true).len(), 1);
    }

    #[test]
    fn quotas_are_kept_or_in_the_way() {
        assert!(quotas(&[], false).state == State::Ok && quotas(&[], true).text == "no group has a limit");
        let one = quotas(&names(1), true);
        assert!(one.state == State::Ok && one.text.starts_with("1 group has a limit, kept"), "{}", one.text);
        let many = quotas(&names(5), true);
        assert!(many.text.ends_with("/vm1, /vm2, /vm3 and 2 more"), "{}", many.text);
        let broken = quotas(&names(2), false);
        assert!(
            broken.state == State::No && broken.text.contains("/vm1, /vm2; write max"),
            "{}",
            broken.text
        );
    }

    #[test]
    fn starvation_by_real_time_tasks_is_noted() {
        assert!(deadline_server(true).state == State::Ok);
        let none = deadline_server(false);
        assert!(none.state == State::Note && none.text.contains("CPUs of their own"), "{}", none.text);
    }

    #[test]
    fn cookies_are_seen() {
        assert!(core_scheduling(Some(&[])).text.starts_with("nobody asks"));
        assert!(core_scheduling(None).text.contains("SMT is off"));
        let tagged = core_scheduling(Some(&names(1)));
        assert!(
            tagged.state == State::No && tagged.text.contains("; on hosts that need it"),
            "{}",
            tagged.text
        );
    }

    /// Each says in one line what there is, and what to do.
    #[test]
    fn lines_are_lines() {
        let lines = [
            quotas(&names(9), true),
            quotas(&names(9), false),
            deadline_server(false),
            core_scheduling(Some(&names(1))),
        ];
        for line in lines.iter().chain(&known_faults("6.12.1", true)) {
            assert!(!line.text.contains('\n') && !line.text.ends_with('.'), "{}", line.text);
        }
    }
}
