// SPDX-License-Identifier: GPL-2.0-only
//! The columns of tables, on terminals and pages: what each is called, what it says, and what stands in it.

use crate::format::{NONE, count, cpus_range, part, percent, ratio, spread, three, time};
use crate::summary::Row;

/// A column.
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// What it says, as a legend has it; nothing if the heading says it.
    pub means: &'static str,
    /// What stands in it.
    pub cell: fn(&Row) -> String,
}

const fn column(name: &'static str, means: &'static str, cell: fn(&Row) -> String) -> Column {
    Column { name, means, cell }
}

const RATE: Column =
    column("work per s and VM", "what the guests got done: the median of the repetitions", |row| {
        format!("{} {}", three(row.rate), row.unit)
    });
const OF_BOUND: Column = column(
    "of bound",
    "the work done, as a share of what the guests could do if they never waited for a preempted sibling",
    |row| percent(row.of_bound),
);
const RATIO: Column = column(
    "ratio [range]",
    "work against the baseline's in the same boot; in brackets the least and the greatest of a repetition, which hold the \
     truth with a chance of 75 % for three repetitions and 97 % for six; another build may lie elsewhere",
    ratio,
);

/// Headings that are no [`Column`]s, as they name the row, and what they say.
pub const SCENARIO: (&str, &str) =
    ("scenario", "what the guests do, and on what host; its name leads to its tables");
/// As [`SCENARIO`].
pub const VARIANT: (&str, &str) = (
    "variant",
    "a scheduler with its settings; one in grey is the baseline that the others are compared with",
);
/// As [`SCENARIO`].
pub const VMS: (&str, &str) = ("VMs", "how many of a kind, the vCPUs of each, and what they do");

/// What was done: the result in a line.
pub static WORK: [Column; 3] = [RATE, OF_BOUND, RATIO];

/// What that is worth, how far repetitions differ, and how long guests waited.
pub static WAITS: [Column; 5] = [
    column(
        "won back",
        "how much of what the baseline loses against the bound this one does not; below zero it loses more",
        |row| percent(row.won_back),
    ),
    column("spread", "half of the range of work from the slowest to the fastest repetition", spread),
    column(
        "wait p50",
        "median of the guests' waits for a sibling (for its lock, its answer, its arrival), as they saw it",
        |row| time(row.wait_ns.0),
    ),
    column("wait p99", "one wait in a hundred is longer", |row| time(row.wait_ns.1)),
    column("longest wait", "of all repetitions", |row| time(row.wait.max_ns)),
];

/// What happened, per second and VM.
pub static EVENTS: [Column; 4] = [
    column("spin turns", "turns of the guests' spin loops", |row| count(row.per_second.spins)),
    column("PAUSE exits", "how often a spinning vCPU left its guest", |row| {
        count(row.per_second.pause_exits)
    }),
    column("all exits", "for any reason", |row| count(row.per_second.exits)),
    column("on_spin", "how often KVM looked for another vCPU to run instead", |row| {
        count(row.per_second.on_spin)
    }),
];

/// Of KVM's directed yields, per second and VM.
pub static YIELDS: [Column; 4] = [
    column("yields tried", "how often KVM asked the scheduler to run another vCPU instead", |row| {
        count(row.per_second.tried)
    }),
    column("ok", "of these, the scheduler gave way", |row| part(row.per_second.ok, row.per_second.tried)),
    column(
        "same rq",
        "of these, the other vCPU waited for the same CPU (on the spinner's own run queue)",
        |row| part(row.per_second.same_rq, row.per_second.tried),
    ),
    column("other rq", "it waited for another CPU", |row| {
        part(row.per_second.other_rq, row.per_second.tried)
    }),
];

/// Where the CPU time went.
pub static CPUS: [Column; 7] = [
    column("CPUs used", "by all vCPUs of a VM", |row| fixed(row.cpus_used.0)),
    column("least–most", "by any VM in any repetition", cpus_range),
    column(
        "per unit, of alone",
        "CPU time that a unit of work took, of what it takes the VM alone, a micro-guest without its spins: above 1 it is \
         wasted; what else is missing to the bound are CPUs that nobody used, or work in series",
        |row| row.cost.map_or(NONE.into(), fixed),
    ),
    column("entitled", "CPUs that are a VM's share when all want more than they get", |row| {
        fixed(row.entitled_cpus)
    }),
    column(
        "steal",
        "CPUs' worth of time that vCPUs wanted to run and did not, as the guests are told",
        |row| fixed(row.per_second.steal_cpus),
    ),
    column("switches", "of vCPUs, per second and VM", |row| count(row.per_second.switches)),
    column("moves", "of vCPUs between CPUs, per second and VM", |row| count(row.per_second.migrations)),
];

fn fixed(value: f64) -> String {
    crate::format::fixed(value, 2)
}

/// The columns that say anything of these rows: neither zero nor unknown in all of them.
pub fn telling<'a>(columns: &'a [Column], rows: &[Row]) -> Vec<&'a Column> {
    let nothing = [NONE, "0", "0.00", "0.00–0.00", "0 %", "baseline"];
    let tells = |column: &&Column| rows.iter().any(|row| !nothing.contains(&(column.cell)(row).as_str()));
    columns.iter().filter(tells).collect()
}

/// Headings and what they mean, of the columns that say anything.
pub fn legend(columns: &[Column], rows: &[Row]) -> Vec<(&'static str, &'static str)> {
    let told = telling(columns, rows).into_iter().filter(|column| !column.means.is_empty());
    told.map(|column| (column.name, column.means)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{rows, sample};

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let names = |columns: &'static [Column], rows: &[Row]| -> Vec<&str> {
            telling(columns, rows).iter().map(|column| column.name).collect()
        };
        let all = rows(&sample());
        assert_eq!(names(&EVENTS, &all), ["PAUSE exits", "all exits", "on_spin"]);
        assert_eq!(names(&CPUS, &all), ["CPUs used", "least–most", "entitled"]);
        assert_eq!(names(&WORK, &all).len(), 3);
        assert!(!names(&WORK, &all[..1]).contains(&"ratio [range]"), "the baseline alone has no ratio");
        assert_eq!(names(&WAITS, &[]), [""; 0]);
    }

    #[test]
    fn what_a_heading_does_not_say_a_legend_does() {
        let all: Vec<&Column> =
            WORK.iter().chain(&WAITS).chain(&EVENTS).chain(&YIELDS).chain(&CPUS).collect();
        for name in ["of bound", "won back", "same rq", "steal", "ratio [range]", "spread"] {
            assert!(all.iter().any(|column| column.name == name && column.means.len() > 20), "{name}");
        }
    }
}
