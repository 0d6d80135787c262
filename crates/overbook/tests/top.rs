// SPDX-License-Identifier: GPL-2.0-only
//! `overbook top`, driven by keys in tmux, on a recording that `overbook lab observe` has made.

use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recording.jsonl");

/// A terminal of its own; it goes with the value.
struct Tmux(String);

impl Tmux {
    fn start(command: &str) -> Tmux {
        let tmux = Tmux(format!("overbook-test-{}", std::process::id()));
        let output = tmux.ask(&["new-session", "-d", "-x", "110", "-y", "24", command]);
        assert!(output.status.success(), "`make setup` installs tmux: {output:?}");
        tmux
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        Command::new("tmux")
            .args(["-L", &self.0, "-f", "/dev/null"])
            .args(arguments)
            .output()
            .expect("tmux runs: `make setup` installs it")
    }

    fn keys(&self, keys: &[&str]) {
        assert!(self.ask(&[&["send-keys"], keys].concat()).status.success());
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.ask(&["capture-pane", "-p"]).stdout).into_owned()
    }

    fn until(&self, what: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(what) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{what:?} never came:\n{screen}");
            sleep(Duration::from_millis(50));
        }
    }

    fn ended(&self) -> bool {
        !self.ask(&["has-session"]).status.success()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.ask(&["kill-server"]);
    }
}

#[test]
fn top_shows_vms_and_looks_into_one() {
    assert!(Path::new(RECORDING).exists());
    let program = env!("CARGO_BIN_EXE_overbook");
    let tmux = Tmux::start(&format!("{program} top --interval 0.1 --from {RECORDING}"));
    let screen = tmux.until("the recording is over");
    for word in ["scheduled by overbook", "3 VMs, 12 vCPUs", "burnt in spins", "delivered", "compute"] {
        assert!(screen.contains(word), "{word:?} is missing:\n{screen}");
    }
    // By name: compute, ipi, lock.
    tmux.keys(&["s", "s", "s"]);
    tmux.until("by name");
    tmux.keys(&["Down", "Down", "Enter"]);
    let inside = tmux.until("picked by tier");
    assert!(inside.contains("ipi [") && inside.contains("boosts/s"), "{inside}");
    tmux.keys(&["Escape"]);
    tmux.until("yields/s");
    tmux.keys(&["q"]);
    let start = Instant::now();
    while !tmux.ended() {
        assert!(start.elapsed() < Duration::from_secs(60), "q does not end it:\n{}", tmux.screen());
        sleep(Duration::from_millis(50));
    }
}
