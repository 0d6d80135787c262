// SPDX-License-Identifier: GPL-2.0-only
//! What a host wastes, in words and as JSON: `overbook report`.

use crate::far::Far;
use crate::ready::{BAD_PERCENT, CONTENDED_PERCENT, Level};
use crate::window::{VmRow, Window, percent};
use overbook_report::format::{NONE, fixed};
use overbook_scheduler::preflight;
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
    /// Ready time by VM, those of the worst vCPUs first.
    pub ready: Vec<VmReady>,
    /// CPUs burnt in spins; nothing if they cannot be seen.
    pub burnt: Option<f64>,
    /// Why spins cannot be seen.
    pub blind: Option<String>,
    /// What ratio this load stands, if it was recorded.
    pub far: Option<Far>,
    /// Why `far` says nothing.
    pub far_unknown: Option<String>,
    /// Who looked.
    #[serde(skip)]
    pub origin: Origin,
}

/// Why nothing is known of a VM; what to do.
pub const NAMELESS: &str =
    "no thread of theirs has a vCPU's name; QEMU gives them names with `-name NAME,debug-threads=on`";

/// Ready time of one VM, in percent of the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmReady {
    /// Process.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Mean over the vCPUs.
    pub percent: f64,
    /// The vCPU that waits most, and how much.
    pub worst_vcpu: u32,
    /// See `worst_vcpu`.
    pub worst_percent: f64,
    /// What the worst vCPU's means.
    pub level: Level,
}

impl VmReady {
    fn of(vm: &VmRow) -> VmReady {
        let worst = vm.vcpus.iter().max_by(|a, b| a.wait.total_cmp(&b.wait));
        VmReady {
            pid: vm.pid,
            name: vm.name.clone(),
            percent: vm.ready_percent(),
            worst_vcpu: worst.map_or(0, |vcpu| vcpu.id),
            worst_percent: vm.worst_ready_percent(),
            level: Level::of(vm.worst_ready_percent()),
        }
    }
}

/// Who looked at the VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Root, who sees all VMs.
    Root,
    /// A user, who sees only their own.
    User,
    /// A recording.
    Recording,
}

impl Origin {
    /// This process.
    pub fn here() -> Origin {
        if preflight::is_root() { Origin::Root } else { Origin::User }
    }

    /// What there is to say where no VM was seen.
    fn of_no_vm(self) -> &'static str {
        match self {
            Origin::Root => "no VM runs here",
            Origin::User => "no VM runs here that this user may see: run this as root to see all",
            Origin::Recording => "no VM was recorded",
        }
    }
}

impl Report {
    /// Of one window of this machine, or of a recording.
    pub fn new(window: Window, origin: Origin) -> Report {
        let mut ready: Vec<VmReady> = window.vms.iter().map(VmReady::of).collect();
        ready.sort_by(|a, b| b.worst_percent.total_cmp(&a.worst_percent).then(a.pid.cmp(&b.pid)));
        Report {
            ready,
            vcpus: window.vms.iter().map(|vm| vm.vcpus.len()).sum(),
            wanted: window.sum(|vm| vm.run + vm.wait),
            used: window.sum(|vm| vm.run),
            burnt: window.burnt(),
            blind: window.blind.clone(),
            far: None,
            far_unknown: None,
            origin,
            window,
        }
    }

    /// With what a recording says of how far this host can go.
    #[must_use]
    pub fn with(mut self, far: Result<Far, String>) -> Report {
        match far {
            Ok(far) => self.far = Some(far),
            Err(why) => self.far_unknown = Some(why),
        }
        self
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
            return writeln!(to, "{}", self.origin.of_no_vm());
        }
        writeln!(
            to,
            "{} with {} want {} CPUs and get {}; {} % of what they want is steal to them",
            count(window.vms.len(), "VM"),
            count(self.vcpus, "vCPU"),
            fixed(self.wanted, 2),
            fixed(self.used, 2),
            fixed(percent(self.wanted - self.used, self.wanted), 0)
        )?;
        match (self.burnt, &self.blind) {
            (Some(burnt), _) => writeln!(
                to,
                "{} CPUs are burnt in spins: {} % of what VMs get",
                fixed(burnt, 2),
                fixed(percent(burnt, self.used), 1)
            )?,
            (None, why) => writeln!(to, "spins cannot be seen: {}", why.as_deref().unwrap_or("no probes"))?,
        }
        writeln!(to, "{}\n", self.readiness())?;
        self.write_vms(to)?;
        writeln!(to, "\n{}", self.expectation())?;
        if self.far.is_some() || self.far_unknown.is_some() {
            writeln!(to)?;
        }
        for sentence in self.far.iter().flat_map(Far::sentences) {
            writeln!(to, "{sentence}.")?;
        }
        match &self.far_unknown {
            Some(why) => writeln!(to, "How far this host can go is not known: {why}."),
            None => Ok(()),
        }
    }

    /// A line for each VM.
    fn write_vms(&self, to: &mut String) -> std::fmt::Result {
        let window = &self.window;
        // Where all VMs are of one class, nobody needs a column of it.
        let classes = window.has_classes();
        let class = |text: &str| if classes { format!(" {text:>7}") } else { String::new() };
        writeln!(
            to,
            "{:<28} {:>7} {:>5}{} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>9} {:>5}",
            "VM",
            "pid",
            "vCPUs",
            class("class"),
            "run",
            "ready",
            "worst",
            "steal",
            "burnt",
            "burnt %",
            "spins/s",
            "yields/s",
            "ok %"
        )?;
        for vm in &window.vms {
            writeln!(
                to,
                "{:<28} {:>7} {:>5}{} {:>7} {:>6}% {:>6}% {:>6}% {:>7} {:>7} {:>9} {:>9} {:>5}",
                short(&vm.name, 28),
                vm.pid,
                vm.vcpus.len(),
                class(vm.class.as_deref().unwrap_or(NONE)),
                fixed(vm.run, 2),
                fixed(vm.ready_percent(), 1),
                fixed(vm.worst_ready_percent(), 1),
                fixed(vm.steal_percent(), 1),
                known(vm.spin, 2),
                known(vm.burnt_percent(), 1),
                known(vm.spins, 0),
                known(vm.yields, 0),
                known(vm.yields_ok_percent, 0)
            )?;
        }
        writeln!(
            to,
            "run and burnt: CPUs' worth of time; ready: of the time, mean of the vCPUs and the worst one; steal: of what \
             the VM wants; {NONE}: not known"
        )
    }

    /// Ready times, as the trade judges them, in one sentence.
    pub fn readiness(&self) -> String {
        let of = |level: Level| self.ready.iter().filter(|vm| vm.level == level).count();
        let (bad, contended) = (of(Level::Bad), of(Level::Contended));
        let worst = self.ready.first().map_or(String::new(), |vm| {
            let percent = fixed(vm.worst_percent, 1);
            format!("; the worst is vCPU {} of {} with {percent} %", vm.worst_vcpu, vm.name)
        });
        let nameless = self.window.vms.iter().filter(|vm| vm.vcpus.is_empty()).count();
        let unknown = match nameless {
            0 => String::new(),
            _ => format!("; of {} nothing is known: {NAMELESS}", count(nameless, "VM")),
        };
        if bad + contended == 0 {
            let limit = fixed(CONTENDED_PERCENT, 0);
            return match nameless == self.ready.len() && nameless > 0 {
                true => format!("Ready time is not known: {NAMELESS}"),
                false => format!("Ready time is good: below {limit} % for every vCPU{worst}{unknown}"),
            };
        }
        format!(
            "Ready time: of {}, {bad} bad (a vCPU with {} % or more) and {contended} contended ({} to {} %){worst}{unknown}",
            count(self.ready.len(), "VM"),
            fixed(BAD_PERCENT, 0),
            fixed(CONTENDED_PERCENT, 0),
            fixed(BAD_PERCENT, 0)
        )
    }

    /// What a directed-yield scheduler could change. The bound is what is burnt now; how much of it comes back depends
    /// on what the vCPUs wait for (docs/results/host.md).
    pub fn expectation(&self) -> String {
        let Some(burnt) = self.burnt else {
            return "Nothing can be said of what `overbook host` would bring, as spins cannot be seen."
                .into();
        };
        let part = percent(burnt, self.used);
        if self.window.scheduler.starts_with("overbook") {
            return format!(
                "`overbook host` schedules already; what is still burnt ({} %) is waiting for vCPUs that run.",
                fixed(part, 1)
            );
        }
        if part < 1.0 {
            return "Next to nothing is burnt: by saving spins `overbook host` would bring nothing to speak of. Who runs next is not in this figure.".into();
        }
        format!(
            "With `overbook host` expect between nothing (vCPUs that wait for IPIs) and some {} CPUs, {} % \
             (vCPUs that wait for locks whose holders were preempted).",
            fixed(burnt, 2),
            fixed(part, 1)
        )
    }
}

/// A figure that may be unknown.
pub fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.into(), |value| fixed(value, decimals))
}

/// So many of a thing.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The first letters of a name.
pub fn short(name: &str, letters: usize) -> String {
    name.chars().take(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::VcpuRow;

    fn window(spin: Option<f64>, scheduler: &str) -> Window {
        let vcpus = vec![VcpuRow::default(); 4];
        let vm = VmRow { name: "web1".into(), run: 2.0, wait: 2.0, spin, vcpus, ..VmRow::default() };
        let blind = spin.is_none().then(|| "no root".into());
        Window { seconds: 60.0, cpus: 4, scheduler: scheduler.into(), blind, vms: vec![vm] }
    }

    fn text(spin: Option<f64>, scheduler: &str) -> String {
        Report::new(window(spin, scheduler), Origin::Root).text()
    }

    #[test]
    fn the_report_says_what_is_burnt_and_what_to_expect() {
        let text_of = text(Some(0.5), "EEVDF");
        assert!(text_of.contains("1 VM with 4 vCPUs want 4.00 CPUs and get 2.00; 50 %"), "{text_of}");
        assert!(text_of.contains("0.50 CPUs are burnt in spins: 25.0 %"), "{text_of}");
        assert!(text_of.contains("some 0.50 CPUs, 25.0 %"), "{text_of}");
        assert!(text(Some(0.0), "EEVDF").contains("bring nothing"));
        assert!(text(Some(0.5), "overbook").contains("schedules already"));
    }

    #[test]
    fn classes_have_a_column_once_there_are_any() {
        let with = |class: &str| {
            let mut window = window(Some(0.5), "overbook");
            window.vms[0].class = Some(class.into());
            Report::new(window, Origin::Root).text()
        };
        assert!(!with("normal").contains("class"));
        let text = with("latency");
        let row = text.lines().find(|line| line.starts_with("web1")).unwrap();
        assert!(
            text.contains("vCPUs   class     run") && row.split_whitespace().nth(3) == Some("latency"),
            "{text}"
        );
    }

    #[test]
    fn ready_time_is_judged_by_the_worst_vcpu() {
        let said = |waits: [f64; 4]| {
            let mut window = window(Some(0.0), "EEVDF");
            for (id, (vcpu, wait)) in window.vms[0].vcpus.iter_mut().zip(waits).enumerate() {
                (vcpu.id, vcpu.wait) = (id as u32, wait);
            }
            let report = Report::new(window, Origin::Root);
            (report.readiness(), report.ready[0].clone())
        };
        let (good, row) = said([0.0, 0.01, 0.04, 0.0]);
        assert!(good.contains("is good: below 5 %") && good.contains("vCPU 2 of web1 with 4.0 %"), "{good}");
        assert!((row.percent - 1.25).abs() < 1e-9 && row.level == Level::Good);
        let (bad, row) = said([0.0, 0.3, 0.0, 0.0]);
        assert!(
            bad.contains("of 1 VM, 1 bad (a vCPU with 10 % or more) and 0 contended (5 to 10 %); the worst"),
            "{bad}"
        );
        assert_eq!((row.worst_vcpu, row.level), (1, Level::Bad));
        let mut window = window(Some(0.0), "EEVDF");
        window.vms[0].vcpus.clear();
        let unknown = Report::new(window, Origin::Root).readiness();
        assert!(
            unknown.starts_with("Ready time is not known") && unknown.contains("debug-threads=on"),
            "{unknown}"
        );
        let (contended, _) = said([0.06, 0.0, 0.0, 0.0]);
        assert!(contended.contains("0 bad") && contended.contains("1 contended (5 to 10 %)"), "{contended}");
        assert!(Report::new(Window::default(), Origin::Root).ready.is_empty());
    }

    #[test]
    fn a_blind_report_claims_nothing() {
        let report = Report::new(window(None, "EEVDF"), Origin::Recording);
        assert_eq!(report.burnt, None);
        let text = report.text();
        assert!(
            text.contains("spins cannot be seen: no root") && text.contains("Nothing can be said"),
            "{text}"
        );
        assert!(!text.contains("bring nothing"), "{text}");
        let row = text.lines().find(|line| line.starts_with("web1")).unwrap();
        assert_eq!(row.split_whitespace().skip(7).collect::<Vec<_>>(), [NONE; 5], "{row}");
    }

    #[test]
    fn only_who_does_not_see_all_is_told_to_be_root() {
        let said = |origin| Report::new(Window::default(), origin).text();
        assert!(said(Origin::User).contains("run this as root"));
        assert!(!said(Origin::Root).contains("root") && !said(Origin::Recording).contains("root"));
    }
}
