// SPDX-License-Identifier: GPL-2.0-only
//! What man pages say beside the command line's own definition: examples, files, and pages of others.

/// What it does, and how it is written.
type Example = (&'static str, &'static str);
/// A file, and what it is.
type File = (&'static str, &'static str);

const CONFIG: File = (
    "/etc/overbook.toml",
    "Defaults of overbook host and overbook guest; OVERBOOK_CONFIG names another file.",
);
const STATE: File = ("/sys/kernel/sched_ext/state", "Says whether a sched_ext scheduler is loaded.");
const SCENARIOS: File = ("/usr/share/overbook/scenarios/", "Scenarios to run, or to begin one's own with.");
const KERNELS: File = (
    "$HOME/.cache/overbook/",
    "Kernels that were fetched, and why others will not do; OVERBOOK_CACHE names another folder.",
);
const DASHBOARD: File = ("/usr/share/overbook/grafana/overbook.json", "A dashboard for Grafana.");
const RULES: File = ("/usr/share/overbook/prometheus/overbook.rules.yml", "Alerts for Prometheus.");

/// Examples of a command, by the name of its page.
pub fn examples(page: &str) -> &'static [Example] {
    match page {
        "overbook" => &[
            ("Say what this machine has, feature by feature", "overbook check"),
            (
                "Measure what a KVM host burns in spins, before anything is changed",
                "sudo overbook report --seconds 60",
            ),
            ("Schedule a KVM host until Ctrl-C", "sudo overbook host"),
            (
                "Measure a scenario on an emulated host",
                "overbook lab run /usr/share/overbook/scenarios/headline/lock-2to1.toml",
            ),
        ],
        "overbook-host" => &[
            ("Have the kernel verify the scheduler, and schedule nothing", "sudo overbook host --dry-run"),
            (
                "Schedule this host until Ctrl-C, and answer Prometheus on loopback",
                "sudo overbook host --metrics",
            ),
            ("Take over from an older one that runs", "sudo overbook host --replace"),
            ("Watch the one that runs, every five seconds", "sudo overbook host --monitor 5"),
            ("Give it shorter slices", "sudo overbook host --set slice-us=2000"),
        ],
        "overbook-metrics" => &[
            ("Answer Prometheus on loopback until Ctrl-C", "sudo overbook metrics"),
            ("Answer at all addresses", "sudo overbook metrics --listen 0.0.0.0:9836"),
        ],
        "overbook-label" => &[(
            "Keep the labels of this node, for a ready time of 10 %, until Ctrl-C",
            "sudo overbook label --ready 10",
        )],
        "overbook-guest" => &[
            ("Schedule this guest until Ctrl-C", "sudo overbook guest"),
            ("Tell the one that runs which CPUs to prefer", "sudo overbook guest --set preferred=0-3"),
            ("Have it choose again by itself", "sudo overbook guest --set preferred=auto"),
            (
                "Have it follow the published rule",
                "sudo overbook guest --set governor=step --set low=100 --set high=200 --set interval-ms=100",
            ),
            ("Say how it does, as a line of JSON", "sudo overbook guest --status"),
            ("Schedule it, and record what the monitor sees", "sudo overbook guest --record trace.jsonl"),
            (
                "Say what another rule would have made of that; load nothing",
                "overbook guest --replay trace.jsonl --governor step",
            ),
        ],
        "overbook-check" => &[
            ("Say what this machine has, and what to do about the rest", "sudo overbook check"),
            (
                "Fail where a scheduler had better not be loaded, faults of the kernel included",
                "sudo overbook check --strict",
            ),
        ],
        "overbook-top" => &[
            ("Watch this host's VMs", "sudo overbook top"),
            ("Watch a recording", "overbook top --from recording.jsonl"),
        ],
        "overbook-report" => &[
            ("Watch this host for a minute", "sudo overbook report --seconds 60"),
            ("The same for programs", "sudo overbook report --seconds 60 --json"),
            (
                "Record a day, and say what ratio of vCPUs to CPUs this host stands",
                "sudo overbook report --record day.jsonl --seconds 86400",
            ),
            (
                "Say it again of the file, for a ready time of 10 %, as a page with plots",
                "overbook report --from day.jsonl --ready 10 --html day.html",
            ),
        ],
        "overbook-evidence" => &[
            ("Ten minutes, with and without the scheduler", "sudo overbook evidence"),
            ("Look only, for a minute", "sudo overbook evidence --as-it-is --seconds 60"),
        ],
        "overbook-bench" => &[(
            "Three VMs of four vCPUs, each with a lock, on this host's own KVM",
            "overbook bench --vms 3 --vcpus 4 --pattern lock --seconds 5",
        )],
        "overbook-lab" => &[
            (
                "Measure a scenario on an emulated host",
                "overbook lab run /usr/share/overbook/scenarios/headline/lock-2to1.toml",
            ),
            ("See which kernels there are for it", "overbook lab kernels"),
        ],
        "overbook-lab-run" => &[
            (
                "Measure a scenario; tables, JSON and a page go to lab-results/",
                "overbook lab run /usr/share/overbook/scenarios/headline/lock-2to1.toml",
            ),
            (
                "On a newer kernel, with another seed, to another folder",
                "overbook lab run /usr/share/overbook/scenarios/headline/ipi-2to1.toml --kernel 7.2 --seed 2 --output other",
            ),
        ],
        "overbook-lab-check" => &[("Check one's own scenario", "overbook lab check my.toml")],
        "overbook-lab-soak" => &[("Five rounds without kills", "overbook lab soak --rounds 5 --reloads 0")],
        "overbook-lab-guest" => &[("On a kernel of series 6.18", "overbook lab guest --kernel 6.18")],
        "overbook-lab-observe" => &[
            ("Make a recording to look at", "overbook lab observe --output recording.jsonl"),
            ("Confirm what a recording says of how far a host can go", "overbook lab observe --what twice"),
        ],
        "overbook-lab-kernels" => &[
            ("List them", "overbook lab kernels"),
            ("Fetch the newest of two series first", "overbook lab kernels --fetch 6.18 --fetch 7.2"),
            ("Build the one with the project's patches first", "overbook lab kernels --fetch patched"),
        ],
        "overbook-lab-emulator" => &[
            ("Which one is used", "overbook lab emulator"),
            ("Build the lab's own first", "overbook lab emulator --build"),
        ],
        "overbook-lab-rivals" => &[
            ("Which there are", "overbook lab rivals"),
            ("Build one of them", "overbook lab rivals --build scx_lavd"),
        ],
        "overbook-lab-show" => &[
            (
                "The result of a run again, with all its tables",
                "overbook lab show -v lab-results/lock-2to1.json",
            ),
            (
                "As a table for documents",
                "overbook lab show --markdown lab-results/lock-2to1.json lab-results/ipi-2to1.json",
            ),
        ],
        "overbook-lab-tables" => &[
            ("Write the tables of a page anew", "overbook lab tables docs/results/*.md"),
            ("Look whether they are what their results say", "overbook lab tables --check docs/results/*.md"),
        ],
        "overbook-tunnel" | "overbook-tunnel-run" => &[(
            "256 CPUs and 2,000 vCPUs, with a picture of who ran where",
            "overbook tunnel run /usr/share/overbook/scenarios/tunnel/large.toml --picture large.svg",
        )],
        "overbook-tunnel-agree" => {
            &[("The lab's figures beside the tunnel's", "overbook tunnel agree lab-results/lock-2to1.json")]
        }
        "overbook-tunnel-replay" => &[(
            "Run the load of a day, as it is and at the ratio that it is told",
            "overbook tunnel replay day.jsonl",
        )],
        "overbook-lab-compare" => &[(
            "Fail if two runs differ by more than one per cent",
            "overbook lab compare before/lock-2to1.json after/lock-2to1.json --within 1",
        )],
        _ => &[],
    }
}

/// Files of a command, by the name of its page; the last is the document to read.
pub fn files(page: &str) -> Vec<File> {
    let own: &[File] = match page {
        "overbook" => &[CONFIG, SCENARIOS, KERNELS, DASHBOARD],
        "overbook-host" => {
            &[CONFIG, ("/etc/default/overbook-host", "Options of overbook-host.service."), STATE, DASHBOARD]
        }
        "overbook-guest" => &[
            CONFIG,
            ("/etc/default/overbook-guest", "Options of overbook-guest.service."),
            ("/run/overbook/preferred", "The preferred CPUs (0-3,8) while overbook guest runs."),
            ("/run/overbook/undo.json", "What is to be put back if all of it is killed."),
            ("/run/overbook/irqbalance.json", "What irqbalance had banned before, while that one runs."),
            STATE,
            DASHBOARD,
        ],
        "overbook-metrics" => {
            &[("/etc/default/overbook-metrics", "Options of overbook-metrics.service."), DASHBOARD, RULES]
        }
        "overbook-lab-run" | "overbook-lab-check" => &[SCENARIOS, KERNELS],
        page if page.starts_with("overbook-tunnel") => &[SCENARIOS],
        page if page.starts_with("overbook-lab") => &[KERNELS],
        _ => &[],
    };
    let document = match page {
        "overbook" => {
            ("/usr/share/doc/overbook/README.md", "What Overbook is, and a table of all documents.")
        }
        "overbook-host" => ("/usr/share/doc/overbook/docs/host.md", "The host scheduler, for operators."),
        "overbook-guest" => ("/usr/share/doc/overbook/docs/guest.md", "The guest scheduler, for operators."),
        "overbook-metrics" => ("/usr/share/doc/overbook/docs/metrics.md", "The metrics, and the alerts."),
        "overbook-check" => ("/usr/share/doc/overbook/docs/troubleshooting.md", "What messages mean."),
        "overbook-lab-run" | "overbook-lab-check" => {
            ("/usr/share/doc/overbook/docs/scenarios.md", "What stands in a scenario.")
        }
        "overbook-lab-compare" | "overbook-lab-show" => {
            ("/usr/share/doc/overbook/docs/report-schema.md", "What stands in a JSON report.")
        }
        page if page.starts_with("overbook-tunnel") => {
            ("/usr/share/doc/overbook/docs/tunnel.md", "What the wind tunnel models, and what it does not.")
        }
        page if page.starts_with("overbook-lab") || page == "overbook-bench" => {
            ("/usr/share/doc/overbook/docs/lab.md", "How the lab measures, and what it cannot know.")
        }
        "overbook-report" => {
            ("/usr/share/doc/overbook/docs/how-far.md", "How far a host can go, and what that rests on.")
        }
        "overbook-label" => {
            ("/usr/share/doc/overbook/docs/fleets.md", "The labels, and what to do with them.")
        }
        "overbook-evidence" => {
            ("/usr/share/doc/overbook/docs/evidence.md", "What is in the file, and what is not.")
        }
        _ => ("/usr/share/doc/overbook/docs/observe.md", "What the columns are."),
    };
    own.iter().copied().chain([document]).collect()
}

/// Pages to read beside those above and below, by the name of the page.
pub fn also(page: &str) -> &'static [&'static str] {
    match page {
        "overbook-host" => {
            &["overbook-guest(1)", "overbook-check(1)", "overbook-report(1)", "overbook-top(1)", "sched(7)"]
        }
        "overbook-guest" => &["overbook-host(1)", "overbook-check(1)", "irqbalance(1)", "sched(7)"],
        "overbook-check" => &["overbook-host(1)", "overbook-guest(1)"],
        "overbook-report" => &["overbook-top(1)", "overbook-host(1)"],
        "overbook-top" => &["overbook-report(1)", "overbook-host(1)"],
        "overbook-metrics" => &["overbook-top(1)", "overbook-report(1)", "overbook-host(1)"],
        "overbook-label" => &["overbook-report(1)", "overbook-metrics(1)"],
        "overbook-bench" => &["overbook-lab-run(1)"],
        "overbook-evidence" => &["overbook-report(1)", "overbook-bench(1)", "overbook-host(1)"],
        "overbook-tunnel-replay" => &["overbook-report(1)"],
        "overbook-lab-run" => &[
            "overbook-lab-check(1)",
            "overbook-lab-show(1)",
            "overbook-lab-compare(1)",
            "overbook-lab-kernels(1)",
            "overbook-lab-emulator(1)",
        ],
        "overbook-lab-check"
        | "overbook-lab-compare"
        | "overbook-lab-emulator"
        | "overbook-lab-kernels"
        | "overbook-lab-show" => &["overbook-lab-run(1)"],
        "overbook-lab-observe" => &["overbook-report(1)", "overbook-top(1)"],
        "overbook-lab-soak" => &["overbook-host(1)"],
        "overbook-lab-guest" => &["overbook-guest(1)"],
        _ => &[],
    }
}
