// SPDX-License-Identifier: GPL-2.0-only
//! What `/proc/stat` would say in a Linux guest whose clock goes at a fraction of the host's speed. KVM tells steal in the
//! host's time, so the guest takes it for as many times as long, and takes the running time for stolen too.

use crate::machine::task::idle_ticks;
use anyhow::{Context, Result};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use procfs::{CpuTime, CurrentSI, KernelStats};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What stands in for `/proc/stat`.
pub const PUBLISHED: &str = "/run/stat";

/// A reader has seen the end by then; one that comes earlier waits.
const PAUSE: Duration = Duration::from_millis(20);

/// Times of a CPU since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// In which it did something.
    pub run: u64,
    /// In which there was nothing to do.
    pub idle: u64,
    /// In which it would have done something, if the host had run it.
    pub steal: u64,
}

impl Ticks {
    /// All time.
    pub fn all(self) -> u64 {
        self.run + self.idle + self.steal
    }
}

/// Of a CPU of a guest that takes a second of the host for 1 / `weight` seconds, and has been up for `up` ticks. Idle times
/// are measured by the guest's own clock, steal is divided, and the rest is running time.
fn ticks(cpu: &CpuTime, up: u64, weight: u32) -> Ticks {
    let idle = idle_ticks(cpu);
    let steal = cpu.steal.unwrap_or(0) / u64::from(weight);
    let run = match weight {
        1 => cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0),
        _ => up.saturating_sub(idle + steal),
    };
    Ticks { run, idle, steal }
}

/// Of all CPUs of this guest at this moment.
///
/// # Errors
/// `/proc` cannot be read.
pub fn now(weight: u32) -> Result<Vec<Ticks>> {
    let up = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?;
    let up = Duration::from(up).as_millis() as u64 * procfs::ticks_per_second() / 1000;
    let stats = KernelStats::current().context("cannot read /proc/stat")?;
    Ok(stats.cpu_time.iter().map(|cpu| ticks(cpu, up, weight)).collect())
}

/// Says them to whoever reads a file, in the format of `/proc/stat`, until it is dropped. Reading `/proc/stat` takes a
/// guest far longer than it takes a host, so they are read when somebody asks, and not before.
pub struct Publisher {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts; the file is there afterwards.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn start(file: &Path, weight: u32) -> Result<Publisher> {
        let _ = fs::remove_file(file);
        mkfifo(file, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make the pipe of steal times")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, pipe) = (stop.clone(), file.to_path_buf());
        let thread = std::thread::spawn(move || {
            // This waits for a reader.
            while let Ok(mut pipe) = File::options().write(true).open(&pipe) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let said = now(weight).and_then(|cpus| text(&cpus));
                if let Err(e) = said.and_then(|text| Ok(pipe.write_all(text.as_bytes())?)) {
                    log::warn!("{e:#}");
                }
                drop(pipe);
                std::thread::sleep(PAUSE);
            }
        });
        Ok(Publisher { file: file.into(), stop, thread: Some(thread) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A reader, as the thread waits for one.
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&self.file);
        let _ = self.thread.take().map(JoinHandle::join);
        drop(reader);
        let _ = fs::remove_file(&self.file);
    }
}

fn text(cpus: &[Ticks]) -> Result<String> {
    let mut text = String::new();
    for (cpu, Ticks { run, idle, steal }) in cpus.iter().enumerate() {
        writeln!(text, "cpu{cpu} {run} 0 0 {idle} 0 0 0 {steal} 0 0")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromReadSI;

    /// Ten seconds: two idle, and four stolen, which are 64 to the guest, so that it counts next to no running time.
    const STAT: &str =
        "cpu  7 0 0 200 0 0 0 6400 0 0\ncpu0 7 0 0 200 0 0 0 6400 0 0\nctxt 1\nbtime 1\nprocesses 1\n";

    #[test]
    fn steal_is_divided_and_what_is_left_is_running_time() {
        let stat = KernelStats::from_read(STAT.as_bytes(), procfs::current_system_info()).unwrap();
        let stretched = ticks(&stat.cpu_time[0], 1000, 16);
        assert_eq!(stretched, Ticks { run: 400, idle: 200, steal: 400 });
        assert_eq!(text(&[stretched]).unwrap(), "cpu0 400 0 0 200 0 0 0 400 0 0\n");
        let plain = ticks(&stat.cpu_time[0], 1000, 1);
        assert_eq!(plain, Ticks { run: 7, idle: 200, steal: 6400 });
    }

    #[test]
    fn whoever_reads_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stat");
        let publisher = Publisher::start(&file, 1).unwrap();
        for _ in 0..3 {
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.matches("cpu0 ").count(), 1, "{text}");
        }
        drop(publisher);
        assert!(!file.exists());
    }
}
