// SPDX-License-Identifier: GPL-2.0-only
//! How far, in words.

use super::Far;
use super::estimate::MOST_TIMES;
use crate::report::{count, short};
use overbook_report::format::fixed;

/// VMs that are named; the others are a number.
const NAMED: usize = 5;

impl Far {
    /// All sentences, a line each; the answer first.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = vec![self.answer()];
        said.extend(self.busy());
        said.extend(self.saving());
        said.extend(self.driven());
        said.push(self.basis());
        said
    }

    /// What ratio it is.
    pub fn answer(&self) -> String {
        let ready = fixed(self.ready_percent, 1).trim_end_matches(".0").to_string();
        let present = format!(
            "there are {} and a ready time of {} %",
            fixed(self.present.ratio, 2),
            fixed(self.present.ready_percent, 2)
        );
        let Some(ratio) = self.ratio else {
            return format!(
                "How far: {present}; even {MOST_TIMES} times as many such VMs would stay below {ready} %, so this host is \
                 too idle to tell: record while it works"
            );
        };
        format!(
            "How far: at a ready time of {ready} % this load stands at {} vCPUs per CPU{}; {present}",
            fixed(ratio, 2),
            self.within()
        )
    }

    /// How sure it is.
    fn within(&self) -> String {
        let end = |end: Option<f64>| end.map_or_else(|| "beyond what can be told".into(), |at| fixed(at, 2));
        match self.sure {
            true => format!(" (95 % interval: {} to {})", end(self.low), end(self.high)),
            false => format!(
                " ({} are too few to say how sure that is: record for longer)",
                count(self.intervals, "interval")
            ),
        }
    }

    fn busy(&self) -> Option<String> {
        let busiest = self.busiest.zip(self.ratio).filter(|(busiest, ratio)| *busiest < ratio * 0.98);
        busiest.map(|(busiest, _)| format!("In the busiest tenth of the time it is {}", fixed(busiest, 2)))
    }

    fn saving(&self) -> Option<String> {
        let (spared, ratio) = self.spared.zip(self.ratio)?;
        let burnt = fixed(self.present.burnt.unwrap_or(0.0), 2);
        let gain = format!("{} (all of it)", fixed(spared, 2));
        Some(if self.scheduler.starts_with("overbook") {
            format!(
                "{burnt} CPUs are burnt in spins beside `overbook host`, for vCPUs that run; without them it would be {gain}"
            )
        } else if spared < ratio * 1.005 {
            "Next to nothing is burnt in spins: `overbook host` would not change this ratio by saving them"
                .into()
        } else {
            format!(
                "{burnt} CPUs are burnt in spins; with `overbook host` expect between {} (none of that comes back) and {gain}",
                fixed(ratio, 2)
            )
        })
    }

    fn driven(&self) -> Option<String> {
        let named: Vec<String> = self
            .drivers
            .iter()
            .take(NAMED)
            .filter(|driver| driver.part_percent >= 0.5)
            .map(|driver| format!("{} {} %", short(&driver.name, 40), fixed(driver.part_percent, 0)))
            .collect();
        let others = self.drivers.len() - named.len();
        let rest = if others > 0 { format!(", and {}", count(others, "other")) } else { String::new() };
        (!named.is_empty()).then(|| {
            format!("Driven by {}{rest}: their parts of what is wanted while vCPUs wait", named.join(", "))
        })
    }

    fn basis(&self) -> String {
        let others = match self.others {
            Some(others) => format!("others than VMs used {} CPUs", fixed(others, 2)),
            None => "others than VMs were not recorded and count as nothing".into(),
        };
        format!(
            "This rests on {} s in {}, of {} with {} vCPUs on {} CPUs, scheduled by {}; {others}; memory is not looked at",
            fixed(self.seconds, 0),
            count(self.intervals, "interval"),
            count(self.vms, "VM"),
            fixed(self.vcpus, 0),
            fixed(self.cpus, 0),
            self.scheduler
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::recorded;
    use super::*;

    fn said(seconds: u64, vms: &[(&str, u32, f64, f64, f64)]) -> String {
        Far::of(&recorded(4, seconds, 0.01, vms), 5.0).unwrap().sentences().join("\n")
    }

    #[test]
    fn the_answer_comes_first_with_how_sure_it_is() {
        let vms = [("db", 4, 0.6, 0.01, 0.1), ("web", 4, 0.2, 0.005, 0.0)];
        let text = said(30, &vms);
        assert!(text.starts_with("How far: at a ready time of 5 % this load stands at "), "{text}");
        assert!(
            text.contains("(95 % interval: ") && text.contains("there are 2.00 and a ready time of"),
            "{text}"
        );
        assert!(text.contains("with `overbook host` expect between "), "{text}");
        assert!(text.contains("Driven by db 75 %, web 25 %: "), "{text}");
        assert!(
            text.contains("30 s in 30 intervals, of 2 VMs with 8 vCPUs on 4 CPUs, scheduled by EEVDF"),
            "{text}"
        );
        assert!(
            said(3, &vms).contains("(3 intervals are too few to say how sure that is: record for longer)")
        );
    }

    #[test]
    fn nothing_is_promised_where_nothing_is_burnt_or_wanted() {
        assert!(said(30, &[("db", 8, 0.4, 0.05, 0.0)]).contains("Next to nothing is burnt"));
        let idle = said(30, &[("db", 8, 0.0001, 0.0, 0.0)]);
        assert!(idle.contains("too idle to tell") && !idle.contains("overbook host"), "{idle}");
    }
}
