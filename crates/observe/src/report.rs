// SPDX-License-Identifier: GPL-2.0-only
//! What a host wastes, in words and as JSON: `overbook report`.

use crate::window::{Window, percent};
use serde::Serialize;
use std::fmt::Write;

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The window.
    pub window: Window,
    /// vCPUs of all VMs.
    pub vcpus: usize,
    /// CPUs that VMs want, and that they get.
    pub wanted: f64,
    /// See `wanted`.
    pub used: f64,
    /// CPUs burnt in spins; nothing if they cannot be seen.
    pub burnt: Option<f64>,
    /// Why spins cannot be seen.
    pub blind: Option<String>,
}

impl Report {
    /// Of one window; `blind` says why there were no probes.
    pub fn new(window: Window, blind: Option<String>) -> Report {
        Report {
            vcpus: window.vms.iter().map(|vm| vm.vcpus.len()).sum(),
            wanted: window.sum(|vm| vm.run + vm.wait),
            used: window.sum(|vm| vm.run),
            burnt: blind.is_none().then(|| window.sum(|vm| vm.spin)),
            blind,
            window,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let window = &self.window;
        writeln!(to, "{} CPUs, scheduled by {}, {:.1} s", window.cpus, window.scheduler, window.seconds)?;
        if window.vms.is_empty() {
            return writeln!(to, "no VM runs here (or none that this user may see: try sudo)");
        }
        writeln!(
            to,
            "{} VMs with {} vCPUs want {:.2} CPUs and get {:.2}; {:.0} % of what they want is steal to them",
            window.vms.len(),
            self.vcpus,
            self.wanted,
            self.used,
            percent(self.wanted - self.used, self.wanted)
        )?;
        match (self.burnt, &self.blind) {
            (Some(burnt), _) => writeln!(
                to,
                "{burnt:.2} CPUs are burnt in spins: {:.1} % of what VMs get",
                percent(burnt, self.used)
            )?,
            (None, why) => writeln!(to, "spins cannot be seen: {}", why.as_deref().unwrap_or("no probes"))?,
        }
        writeln!(to)?;
        writeln!(
            to,
            "{:<20} {:>7} {:>5} {:>7} {:>7} {:>7} {:>7} {:>9} {:>9} {:>5}",
            "VM", "pid", "vCPUs", "run", "steal", "burnt", "burnt %", "spins/s", "yields/s", "ok %"
        )?;
        for vm in &window.vms {
            writeln!(
                to,
                "{:<20} {:>7} {:>5} {:>7.2} {:>6.1}% {:>7.2} {:>7.1} {:>9.0} {:>9.0} {:>5.0}",
                short(&vm.name, 20),
                vm.pid,
                vm.vcpus.len(),
                vm.run,
                vm.steal_percent(),
                vm.spin,
                vm.burnt_percent(),
                vm.spins,
                vm.yields,
                vm.yields_ok_percent
            )?;
        }
        writeln!(to)?;
        writeln!(to, "{}", self.expectation())
    }

    /// What a directed-yield scheduler could change. The bound is what is burnt now; how much of it comes back depends
    /// on what the vCPUs wait for (docs/results.md).
    pub fn expectation(&self) -> String {
        let Some(burnt) = self.burnt else {
            return "Nothing can be said of what `overbook host` would bring, as spins cannot be seen."
                .into();
        };
        let part = percent(burnt, self.used);
        if self.window.scheduler.starts_with("overbook") {
            return format!(
                "`overbook host` schedules already; what is still burnt ({part:.1} %) is waiting for vCPUs that run."
            );
        }
        if part < 1.0 {
            return "Next to nothing is burnt: `overbook host` would bring nothing to speak of.".into();
        }
        format!(
            "With `overbook host` expect between nothing (vCPUs that wait for IPIs) and some {:.2} CPUs, {part:.1} % \
             (vCPUs that wait for locks whose holders were preempted).",
            burnt
        )
    }
}

/// The first letters of a name.
pub fn short(name: &str, letters: usize) -> String {
    name.chars().take(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{VcpuRow, VmRow};

    fn window(spin: f64, scheduler: &str) -> Window {
        let vcpus = vec![VcpuRow::default(); 4];
        let vm = VmRow { name: "web1".into(), run: 2.0, wait: 2.0, spin, vcpus, ..VmRow::default() };
        Window { seconds: 60.0, cpus: 4, scheduler: scheduler.into(), vms: vec![vm] }
    }

    #[test]
    fn the_report_says_what_is_burnt_and_what_to_expect() {
        let text = Report::new(window(0.5, "EEVDF"), None).text();
        assert!(text.contains("1 VMs with 4 vCPUs want 4.00 CPUs and get 2.00; 50 %"), "{text}");
        assert!(text.contains("0.50 CPUs are burnt in spins: 25.0 %"), "{text}");
        assert!(text.contains("some 0.50 CPUs, 25.0 %"), "{text}");
        assert!(Report::new(window(0.0, "EEVDF"), None).text().contains("bring nothing"));
        assert!(Report::new(window(0.5, "overbook"), None).text().contains("schedules already"));
    }

    #[test]
    fn a_blind_report_claims_nothing() {
        let report = Report::new(window(0.0, "EEVDF"), Some("no root".into()));
        assert_eq!(report.burnt, None);
        assert!(report.text().contains("spins cannot be seen: no root"));
        assert!(report.text().contains("Nothing can be said"));
    }
}
