// SPDX-License-Identifier: GPL-2.0-only
//! Prometheus itself, Debian's, on what is served: it takes the rules, alerts fire, a server scrapes, and every query of the
//! dashboard and of the rules finds something. It needs a network once, so it belongs to the second ring.

use overbook_guest::stats::GuestStats;
use overbook_observe::exporter::Served;
use overbook_observe::metrics::Counted;
use overbook_observe::scrape::{self, Answer};
use overbook_observe::snapshot::read_recording;
use overbook_scheduler::stats::ClassStats;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recording.jsonl");
/// Longest wait for a server on a computer that has other work.
const PATIENCE: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Debian's program of this name.
fn program(name: &str) -> PathBuf {
    let fetched = root().join("tools/prometheus");
    let output = Command::new(fetched).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tools/prometheus fetches nothing");
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(name)
}

fn promtool(arguments: &[&str]) -> Output {
    let program = program("promtool");
    Command::new(program).args(arguments).current_dir(root().join("packaging/prometheus")).output().unwrap()
}

#[test]
fn the_rules_are_sound_and_every_alert_fires() {
    let output = promtool(&["check", "rules", "overbook.rules.yml"]);
    assert!(output.status.success(), "{}", text(&output));
    let output = promtool(&["test", "rules", "overbook.test.yml"]);
    assert!(output.status.success() && !text(&output).contains("FAILED"), "{}", text(&output));
    // Each is expected to fire somewhere, and not to fire elsewhere.
    let read = |file: &str| fs::read_to_string(root().join("packaging/prometheus").join(file)).unwrap();
    let tests = read("overbook.test.yml");
    let rules = read("overbook.rules.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 5, "{alerts:?}");
    for alert in alerts {
        let tried: Vec<&str> = tests.split("alertname: ").filter(|part| part.starts_with(alert)).collect();
        assert!(tried.iter().any(|part| part.contains("exp_labels")), "{alert} never fires");
    }
}

#[test]
fn alerts_are_documented() {
    let docs = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let rules = fs::read_to_string(root().join("packaging/prometheus/overbook.rules.yml")).unwrap();
    for name in rules.lines().filter_map(|line| line.trim().split_once("- alert: ").map(|(_, name)| name)) {
        assert!(docs.contains(&format!("`{name}`")), "docs/metrics.md says nothing of {name}");
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves what a host with VMs said when it was recorded, or a guest.
fn serve(served: Served) -> SocketAddr {
    let text = served.text().unwrap();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let answer = move |_: &str| Answer { status: 200, kind, text: text.clone() };
    scrape::serve("127.0.0.1:0".parse().unwrap(), scrape::LIMITS, answer).unwrap()
}

/// `overbook metrics` on this machine, and where it answers.
fn exporter() -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    let mut child =
        command.args(["metrics", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("http://")).expect("it says where it answers");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_string();
    (Running(child), address)
}

/// A server of Prometheus.
struct Server {
    _process: Running,
    url: String,
    promtool: PathBuf,
}

impl Server {
    fn start(dir: &TempDir, targets: &[(&str, String)]) -> Server {
        let jobs: String = targets
            .iter()
            .map(|(job, address)| {
                format!("  - job_name: {job}\n    static_configs: [{{targets: [\"{address}\"]}}]\n")
            })
            .collect();
        let rules = root().join("packaging/prometheus/overbook.rules.yml").canonicalize().unwrap();
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n{jobs}",
            rules.display()
        );
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, settings).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program("prometheus"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running(command.spawn().unwrap());
        Server { _process: process, url: format!("http://127.0.0.1:{port}"), promtool: program("promtool") }
    }

    /// Series that a query finds; nothing where it is refused, or nobody listens yet.
    fn query(&self, expression: &str) -> Option<usize> {
        let mut command = Command::new(&self.promtool);
        let output =
            command.args(["query", "instant", "-o", "json", &self.url, expression]).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).ok()?;
        output.status.success().then(|| found.as_array().map_or(0, Vec::len))
    }

    fn finds(&self, expression: &str) -> usize {
        let start = Instant::now();
        loop {
            match self.query(expression) {
                Some(found) if found > 0 => return found,
                answer => assert!(start.elapsed() < PATIENCE, "{expression}: {answer:?}"),
            }
            sleep(Duration::from_millis(200));
        }
    }
}

/// Queries of the dashboard, with the interval that Grafana would put in.
fn queries() -> Vec<String> {
    let text = fs::read_to_string(root().join("packaging/grafana/overbook.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let filled = |expr: &str| expr.replace("$__rate_interval", "1m").replace("$instance", ".*");
    targets.map(|target| filled(target["expr"].as_str().unwrap())).collect()
}

#[test]
fn prometheus_scrapes_and_every_query_finds_something() {
    let last = read_recording(Path::new(RECORDING)).unwrap().pop().unwrap();
    let mut stats = last.overbook.clone().expect("a recording of `overbook host`");
    // It was made before there were classes, and before it was said which VMs have ended.
    stats.classes.insert("normal".into(), ClassStats { vms: 3, ..ClassStats::default() });
    stats.vms.values_mut().for_each(|vm| vm.alive = vm.vcpus.len() as u64);
    let counted = Some(Counted::Host(Box::new(stats)));
    let host = serve(Served {
        seen: Some(overbook_observe::Snapshot { loads: Some(1), ..last }),
        counted,
        ..Served::default()
    });
    let guest =
        serve(Served { counted: Some(Counted::Guest(Box::<GuestStats>::default())), ..Served::default() });
    let (_exporter, address) = exporter();
    let dir = TempDir::new().unwrap();
    let targets = [("host", host.to_string()), ("guest", guest.to_string()), ("overbook", address)];
    let server = Server::start(&dir, &targets);
    assert_eq!(server.finds("up == 1 and on () (count(up == 1) == 3)"), 3);
    // This machine's own, from the program itself.
    for own in ["overbook_cpus", "overbook_scheduler_loaded", "overbook_scheduler"] {
        assert_eq!(server.finds(&format!("{own}{{job=\"overbook\"}}")), 1, "{own}");
    }
    let queries = queries();
    assert!(queries.len() > 10, "{queries:?}");
    for query in &queries {
        server.finds(query);
    }
    // Three VMs of four vCPUs, and what the rules make of them.
    assert_eq!(server.finds("overbook_vcpu_ready_seconds_total{job=\"host\"}"), 12);
    for rule in ["vm:overbook_ready:ratio_rate5m", "vm:overbook_ready_worst:ratio_rate5m"] {
        assert_eq!(server.finds(rule), 3, "{rule}");
    }
    assert_eq!(server.finds("instance:overbook_vcpus_per_cpu:ratio{job=\"host\"} == 3"), 1);
}
