// SPDX-License-Identifier: GPL-2.0-only
//! The soak: VMs come and go while the host scheduler is changed, killed, loaded again, their `cpu.max` changes, and CPUs go
//! away. Every VM must get on at any time, and the kernel must have no complaint.

use super::idle_group::IdleGroup;
use super::kernel::{complaints, restarts, serves_statistics, set_online};
use super::program::overbook;
use crate::experiment::cgroup::remove_tree;
use crate::machine::describe::scheduler_state;
use crate::machine::instrument::Clock;
use crate::machine::task::{self, now_ns};
use crate::protocol::{Event, Soak};
use anyhow::{Context, Result, bail, ensure};
use overbook_vmm::{GuestMemory, Load, Pattern, VmConfig, VmProcess};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// What the scheduler is told while it runs, by turns.
const CHANGES: [&str; 6] =
    ["batch-vms=*", "relations=off", "slice-us=1000", "batch-vms=", "relations=on", "slice-us=3000"];
/// What a VM is said to be, by turns.
const CLASSES: [&str; 3] = ["latency", "batch", "normal"];
/// `cpu.max` of a VM, by turns.
const LIMITS: [&str; 4] = ["50000 100000", "max", "150000 100000", "20000 20000"];
/// VMs at a time.
const VMS: usize = 3;
/// Longest wait for the scheduler to load or to go, ns. Verifying takes an emulated CPU some 20 s.
const PATIENCE_NS: u64 = 180_000_000_000;

/// So many upsets contain one CPU hotplug; the others are kills. A hotplug loads the scheduler twice.
const HOTPLUG_EVERY: u32 = 8;

struct Vm {
    name: String,
    vcpus: u32,
    process: VmProcess,
    /// Goes after the process.
    group: Group,
    memory: GuestMemory,
}

impl Vm {
    /// What its vCPUs have done so far, in the unit of its pattern.
    fn work(&self) -> Result<u64> {
        (0..self.vcpus).map(|i| Ok(self.memory.counters(i)?.work)).sum()
    }

    /// What its vCPUs have done: time on CPUs, in queues, turns of spins, interrupts.
    fn done(&self) -> Result<Vec<(task::TaskCounts, u64, u64)>> {
        let tids = self.process.tids.iter().enumerate();
        tids.map(|(i, tid)| {
            let seen = self.memory.counters(i as u32)?;
            Ok((task::counts(self.process.pid(), *tid)?, seen.spins, seen.interrupts))
        })
        .collect()
    }
}

/// A VM's cgroup.
struct Group(PathBuf);

impl Group {
    fn create(name: &str, pid: i32) -> Result<Group> {
        let group = Group(Path::new("/sys/fs/cgroup").join(format!("soak-{name}")));
        fs::create_dir(&group.0).context("cannot make a cgroup")?;
        fs::write(group.0.join("cgroup.procs"), pid.to_string())?;
        Ok(group)
    }

    fn limit(&self, limit: &str) -> Result<()> {
        fs::write(self.0.join("cpu.max"), limit).with_context(|| format!("cannot write {limit:?} to cpu.max"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = remove_tree(&self.0);
    }
}

struct State<'a> {
    clock: &'a Clock,
    seed: u64,
    vms: Vec<Vm>,
    started: u32,
    /// The one that goes and comes back.
    last_cpu: u32,
    scheduler: Option<Child>,
}

/// Runs the soak; one log line per round.
///
/// # Errors
/// The first thing that went wrong, with the round.
pub fn run(soak: &Soak, seed: u64, clock: &Clock, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    let start = now_ns();
    let mut state = State {
        clock,
        seed: seed | 1,
        vms: Vec::new(),
        started: 0,
        last_cpu: soak.cpus - 1,
        scheduler: None,
    };
    let idle_group = IdleGroup::create()?;
    // The first load finds the kernel's configuration nowhere, as in a container.
    fs::rename("/boot", "/hidden").context("the kernel's configuration cannot be hidden")?;
    let loaded = state.load();
    fs::rename("/hidden", "/boot")?;
    loaded?;
    idle_group.check()?;
    drop(idle_group);
    guests_leave_it_alone()?;
    let every = (soak.rounds / (soak.reloads + 1)).max(1);
    let mut reloads = 0;
    for round in 0..soak.rounds {
        let what = state.round(round).with_context(|| format!("round {}", round + 1))?;
        say(Event::Log(format!("round {}: {what}", round + 1)))?;
        if (round + 1) % every == 0 && reloads < soak.reloads {
            let what = state.upset(reloads).with_context(|| format!("after round {}", round + 1))?;
            reloads += 1;
            say(Event::Log(what))?;
        }
        say(Event::Progress(round + 1, soak.rounds))?;
    }
    state.end()?;
    say(Event::Log(format!(
        "{} rounds, {reloads} reloads, {} VMs, {:.1} virtual minutes: all VMs got on, and the kernel had no complaint",
        soak.rounds,
        state.started,
        (now_ns() - start) as f64 / 60e9
    )))
}

/// What is asked of `overbook guest` does not touch the host's scheduler, which has the same socket.
fn guests_leave_it_alone() -> Result<()> {
    let output = overbook(&["guest", "--clean-up"])?;
    ensure!(output.status.success(), "--clean-up: {}", String::from_utf8_lossy(&output.stderr));
    let output = overbook(&["guest", "--enforce", "sched-ext", "--replace"])?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && text.contains("runs already"), "--replace: {text}");
    ensure!(scheduler_state()? == "enabled", "a guest has ended the host's scheduler");
    Ok(())
}

impl State<'_> {
    /// xorshift64.
    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 33) as usize % below
    }

    /// One VM goes, others come, the scheduler is changed; then everybody must have worked.
    fn round(&mut self, round: u32) -> Result<String> {
        if !self.vms.is_empty() && self.random(2) == 0 {
            let out = self.random(self.vms.len());
            self.vms.remove(out);
        }
        while self.vms.len() < VMS {
            self.start_vm()?;
        }
        let change = CHANGES[round as usize % CHANGES.len()];
        let set = overbook(&["host", "--set", change])?;
        if !set.status.success() || !String::from_utf8_lossy(&set.stdout).contains(change) {
            bail!(
                "`overbook host --set {change}` failed ({}): {}",
                set.status,
                String::from_utf8_lossy(&[set.stdout, set.stderr].concat())
            );
        }
        let told = self.say(CLASSES[round as usize % CLASSES.len()])?;
        let (limited, limit) = (self.random(self.vms.len()), LIMITS[self.random(LIMITS.len())]);
        self.vms[limited].group.limit(limit)?;
        self.all_get_on()?;
        self.expect("enabled")?;
        let limited = &self.vms[limited].name;
        let patterns: Vec<&str> = self.vms.iter().map(|vm| vm.name.as_str()).collect();
        Ok(format!("{change}, {told}, {}, cpu.max of {limited} {limit:?}", patterns.join(" ")))
    }

    /// Says the class of the first VM.
    fn say(&self, class: &str) -> Result<String> {
        let told = format!("{}={class}", self.vms[0].process.pid());
        let output = overbook(&["host", "--class", &told])?;
        ensure!(
            output.status.success(),
            "`overbook host --class {told}` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(told)
    }

    /// The class of the first VM, as everybody can see it.
    fn seen_class(&self) -> Result<Option<String>> {
        let output = overbook(&["report", "--seconds", "0.5", "--json"])?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr)))?;
        let (pid, vms) = (self.vms[0].process.pid(), report["window"]["vms"].as_array());
        let vm = vms.into_iter().flatten().find(|vm| vm["pid"] == pid);
        Ok(vm.and_then(|vm| Some(vm["class"].as_str()?.into())))
    }

    fn start_vm(&mut self) -> Result<()> {
        let pattern = Pattern::ALL[self.random(Pattern::ALL.len())];
        let vcpus = [2, 4][self.random(2)];
        self.started += 1;
        let name = format!("{}-{}", pattern.name(), self.started);
        let seed = self.random(1 << 30) as u64;
        let memory = GuestMemory::create(&Load::new(pattern), vcpus, seed, self.clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: name.clone(), vcpus, ple: true, memory: memory.path() };
        let mut process = VmProcess::spawn(&config)?;
        let group = Group::create(&name, process.pid())?;
        process.go()?;
        self.vms.push(Vm { name, vcpus, process, group, memory });
        Ok(())
    }

    /// Every VM works from now on, within a patience that even the least pattern does not need.
    fn all_get_on(&mut self) -> Result<()> {
        // What it did before what has just happened says nothing.
        let before = self.vms.iter().map(Vm::work).collect::<Result<Vec<_>>>()?;
        let start = now_ns();
        sleep(Duration::from_millis(300));
        for (nth, before) in before.into_iter().enumerate() {
            loop {
                let vm = &mut self.vms[nth];
                if let Some(why) = vm.process.stopped() {
                    bail!("{} stopped: {why}", vm.name);
                }
                if vm.work()? > before {
                    break;
                }
                if now_ns() - start > 10_000_000_000 {
                    bail!("{} has done nothing for 10 seconds; {}", self.vms[nth].name, self.doing()?);
                }
                sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// What all vCPUs do for two seconds: whether they have no CPU, or do nothing with it.
    fn doing(&self) -> Result<String> {
        let look = || self.vms.iter().map(Vm::done).collect::<Result<Vec<_>>>();
        let (before, start) = (look()?, now_ns());
        sleep(Duration::from_secs(2));
        let now = look()?;
        let mut text = format!("in the next {} ms", (now_ns() - start) / 1_000_000);
        for ((vm, then), now) in self.vms.iter().zip(before).zip(now) {
            text += &format!("; {}", vm.name);
            for (then, now) in then.iter().zip(now) {
                text += &format!(
                    " [ran {} ms, queued {} ms, {} spins, {} interrupts]",
                    (now.0.run_ns - then.0.run_ns) / 1_000_000,
                    (now.0.queued_ns - then.0.queued_ns) / 1_000_000,
                    now.1 - then.1,
                    now.2 - then.2
                );
            }
        }
        Ok(text)
    }

    /// The scheduler is restarted by a CPU that goes and comes, or killed and loaded again.
    fn upset(&mut self, nth: u32) -> Result<String> {
        if nth % HOTPLUG_EVERY == 1 {
            let before = restarts()?;
            set_online(self.last_cpu, false)?;
            self.wait_until(
                || Ok(restarts()? > before && scheduler_state()? == "enabled"),
                "come back without a CPU",
            )?;
            self.all_get_on()?;
            let before = restarts()?;
            set_online(self.last_cpu, true)?;
            self.wait_until(
                || Ok(restarts()? > before && scheduler_state()? == "enabled"),
                "come back with all CPUs",
            )?;
            self.all_get_on()?;
            return Ok("a CPU went and came back".into());
        }
        let mut child = self.scheduler.take().context("no scheduler")?;
        child.kill()?;
        child.wait()?;
        self.wait_until(|| Ok(scheduler_state()? == "disabled"), "leave after kill -9")?;
        self.all_get_on()?;
        // It may be said while nobody schedules.
        let class = ["batch", "latency"][nth as usize % 2];
        self.say(class)?;
        self.load()?;
        let start = now_ns();
        loop {
            let seen = self.seen_class()?;
            if seen.as_deref() == Some(class) {
                break;
            }
            ensure!(
                now_ns() - start < PATIENCE_NS,
                "a VM that was said to be {class} while none scheduled is {seen:?}"
            );
        }
        self.all_get_on()?;
        Ok("killed with VMs running, and loaded again".into())
    }

    fn load(&mut self) -> Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("host").stdin(Stdio::null());
        // Most of a soak is loading, beside three vCPUs per CPU. With nice −20, khugepaged (nice 19), preempted in an RCU
        // section, once did not run for 21 s.
        // SAFETY: a plain system call.
        unsafe {
            command.pre_exec(|| match libc::setpriority(libc::PRIO_PROCESS, 0, -10) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        self.scheduler = Some(command.spawn().context("cannot start `overbook host`")?);
        self.wait_until(|| Ok(scheduler_state()? == "enabled"), "load")?;
        // It hears orders a moment later.
        self.wait_until(|| Ok(serves_statistics()), "serve its statistics")
    }

    fn wait_until(&mut self, done: impl Fn() -> Result<bool>, what: &str) -> Result<()> {
        let start = now_ns();
        while !done()? {
            if let Some(child) = &mut self.scheduler
                && let Some(status) = child.try_wait()?
            {
                bail!("`overbook host` ended ({status}) instead of doing its work");
            }
            if now_ns() - start > PATIENCE_NS {
                bail!("the scheduler did not {what} within {} s", PATIENCE_NS / 1_000_000_000);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn expect(&self, wanted: &str) -> Result<()> {
        let found = scheduler_state()?;
        if found != wanted {
            bail!("sched_ext is {found} and should be {wanted}: {}", complaints()?.unwrap_or_default());
        }
        Ok(())
    }

    /// SIGTERM, and everything is as before.
    fn end(&mut self) -> Result<()> {
        let mut child = self.scheduler.take().context("no scheduler")?;
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let status = child.wait()?;
        if !status.success() {
            bail!("`overbook host` ended with {status} after SIGTERM");
        }
        self.expect("disabled")?;
        self.all_get_on()?;
        self.vms.clear();
        if let Some(line) = complaints()? {
            bail!("the kernel complains: {line}");
        }
        Ok(())
    }
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.scheduler {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
