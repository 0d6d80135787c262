// SPDX-License-Identifier: GPL-2.0-only
//! Recordings: a line of JSON per snapshot, in a file that never grows beyond a limit.
//!
//! Counters of snapshots only grow, so leaving out a snapshot merges the two intervals beside it into one, exactly. When
//! a file reaches its limit, every other snapshot goes, and from then on they are taken half as often: hours fit, ever
//! coarser. Only what a VM did in the interval in which it ended is lost, and such an interval is longer then. A file of very
//! many short recordings loses the oldest of them.
//!
//! A line is written at once, and the file is replaced as a whole when it is thinned: who is killed loses the interval
//! that has not ended. One process writes to a file, by a lock. A file that has a recording already is continued: a
//! second recording follows the first, and time starts anew in it.

use crate::snapshot::Snapshot;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the longest snapshot: some 200 for each of 256 k vCPUs.
pub const LONGEST_LINE: u64 = 50 << 20;

/// Time between two snapshots of a file that was never thinned.
pub const STEP: Duration = Duration::from_secs(1);

/// A file that snapshots are added to.
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// No file but a pipe or a device: neither locked nor thinned.
    stream: bool,
    /// Bytes of the file, and what they may be.
    bytes: u64,
    limit: u64,
    step: Duration,
}

/// A recording, and what is made of it.
type Old = BufReader<File>;
type New<'a> = BufWriter<&'a File>;

/// What thinning needs to know of a line.
#[derive(Deserialize)]
struct Moment {
    at_ns: u64,
}

fn moment(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Moment>(line).ok().map(|moment| moment.at_ns)
}

impl Recorder {
    /// Opens a file to add to, of `limit` bytes at most; makes it if there is none.
    ///
    /// # Errors
    /// It cannot be written, is no recording, or another process writes to it; one sentence.
    pub fn open(path: &Path, limit: u64) -> Result<Recorder> {
        let name = path.display();
        let unwritable = || format!("cannot write the recording {name}");
        let stream = fs::metadata(path).is_ok_and(|there| !there.is_file());
        let mut options = OpenOptions::new();
        let options = if stream { options.write(true) } else { options.read(true).write(true).create(true) };
        let file = options.truncate(false).open(path).with_context(unwritable)?;
        let path = if stream { path.into() } else { path.canonicalize().with_context(unwritable)? };
        let mut recorder = Recorder { path, file, stream, bytes: 0, limit, step: STEP };
        if !stream {
            recorder.take().with_context(unwritable)?;
            recorder.go_on().with_context(unwritable)?;
        }
        Ok(recorder)
    }

    /// Takes the lock.
    fn take(&mut self) -> Result<()> {
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process writes to it"),
            Err(TryLockError::Error(why)) => return Err(why.into()),
        }
        // It may have been replaced between opening and locking.
        match fs::metadata(&self.path)
            .is_ok_and(|there| there.ino() == self.file.metadata().map_or(0, |f| f.ino()))
        {
            true => Ok(()),
            false => bail!("another process writes to it"),
        }
    }

    /// Finds where to go on: behind the last whole line, as often as before.
    fn go_on(&mut self) -> Result<()> {
        let (mut whole, mut gaps, mut last) = (0, Vec::new(), None);
        let mut reader = BufReader::new(&self.file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                // A writer that was killed leaves the beginning of a snapshot, and nothing else.
                if whole == 0 && read > 0 && !line.starts_with(b"{\"at_ns\":") {
                    bail!("it holds something else: name another file");
                }
                break;
            }
            let Some(at) = moment(&line) else { bail!("it holds something else: name another file") };
            gaps.extend(last.filter(|before| *before < at).map(|before| (at - before) as f64 / 1e9));
            last = Some(at);
            whole += read as u64;
        }
        self.file.set_len(whole)?;
        self.bytes = whole;
        let usual = overbook_report::stats::median(&gaps);
        while self.step.as_secs_f64() * 1.5 < usual {
            self.step *= 2;
        }
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// Time from one snapshot to the next.
    pub fn step(&self) -> Duration {
        self.step
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// The disk is full, or the like. What was written before stays, and can be read.
    pub fn add(&mut self, snapshot: &Snapshot) -> Result<()> {
        let unwritable = || format!("cannot write the recording {}", self.path.display());
        let mut line = serde_json::to_vec(snapshot)?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(unwritable)?;
        self.bytes += line.len() as u64;
        if self.bytes > self.limit && !self.stream {
            self.shrink().with_context(|| format!("cannot thin the recording {}", self.path.display()))?;
        }
        Ok(())
    }

    /// Leaves out every other snapshot, and again, until the rest fits; where recordings are too many for that, the oldest of
    /// them.
    fn shrink(&mut self) -> Result<()> {
        let (mut step, mut before) = (self.step, u64::MAX);
        while self.bytes < before {
            (step, before) = (step * 2, self.bytes);
            // A little less than the step: no clock is that exact.
            let least = step.as_nanos() as u64 * 3 / 4;
            self.rewrite(&|from, to| thin(from, to, least))?;
            if self.bytes <= self.limit {
                self.step = step;
                return Ok(());
            }
        }
        let most = self.limit * 3 / 4;
        self.rewrite(&|from, to| leave_oldest(from, to, most))
    }

    /// Replaces the file by what `write` makes of it.
    fn rewrite(&mut self, write: &dyn Fn(&mut Old, &mut New) -> Result<()>) -> Result<()> {
        // Whoever is killed here leaves a file behind, which goes; a link of that name is not followed.
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        let _ = fs::remove_file(&part);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&part)?;
        let written = || -> Result<()> {
            file.set_permissions(self.file.metadata()?.permissions())?;
            file.lock()?;
            let mut writer = BufWriter::new(&file);
            write(&mut BufReader::new(File::open(&self.path)?), &mut writer)?;
            writer.flush()?;
            Ok(())
        }();
        if let Err(why) = written {
            let _ = fs::remove_file(&part);
            return Err(why);
        }
        fs::rename(&part, &self.path)?;
        self.file = file;
        self.bytes = self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }
}

impl Drop for Recorder {
    /// Gives the lock back at once: a child that another thread starts has the file until it executes its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// The next line, and its moment; nothing behind the last whole snapshot.
fn next_line(from: &mut Old) -> Result<Option<(u64, Vec<u8>)>> {
    let mut line = Vec::new();
    from.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    Ok(moment(&line).map(|at| (at, line)))
}

/// Leaves out snapshots that are nearer to the one before than `least`, ns. The first and the last of each recording stay.
fn thin(from: &mut Old, to: &mut New, least: u64) -> Result<()> {
    let (mut kept, mut before): (Option<u64>, Option<(u64, Vec<u8>)>) = (None, None);
    loop {
        let line = next_line(from)?;
        // The last of a recording is known when the next one has begun.
        if let Some((at_before, text)) = before.take() {
            let last = line.as_ref().is_none_or(|(at, _)| *at <= at_before);
            let far = kept.is_none_or(|kept| at_before < kept || at_before - kept >= least);
            if far || last {
                to.write_all(&text)?;
                kept = if last { None } else { Some(at_before) };
            }
        }
        if line.is_none() {
            return Ok(());
        }
        before = line;
    }
}

/// Leaves out the oldest recordings, until no more than `most` bytes are left; the last stays whole.
fn leave_oldest(from: &mut Old, to: &mut New, most: u64) -> Result<()> {
    let (mut starts, mut end, mut before) = (Vec::new(), 0, None);
    while let Some((at, line)) = next_line(from)? {
        if before.is_none_or(|before| at <= before) {
            starts.push(end);
        }
        before = Some(at);
        end += line.len() as u64;
    }
    let first = starts.iter().find(|start| end - **start <= most).or(starts.last());
    let first = first.copied().unwrap_or_default();
    from.seek(SeekFrom::Start(first))?;
    std::io::copy(&mut from.take(end - first), to)?;
    Ok(())
}

/// Reads snapshots that were recorded, a line of JSON each. A last line that ends nowhere is what a process left that was
/// killed; it is no part of the recording.
///
/// # Errors
/// The file cannot be read, or a line is none; the message names it.
pub fn read_lines(file: &Path) -> Result<Vec<Snapshot>> {
    let unreadable = || format!("cannot read recording {}", file.display());
    let mut reader = BufReader::new(File::open(file).with_context(unreadable)?);
    let mut snapshots: Vec<Snapshot> = Vec::new();
    loop {
        // A device may have no line at all, and no end; and a line may end within a character.
        let mut line = Vec::new();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).with_context(unreadable)? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(_) if !line.ends_with(b"\n") && !snapshots.is_empty() => break,
            Err(why) => {
                let place = format!("{}:{}", file.display(), snapshots.len() + 1);
                return Err(why).with_context(|| format!("{place}: not a recorded snapshot"));
            }
        }
    }
    Ok(snapshots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn at(seconds: f64) -> Snapshot {
        Snapshot { at_ns: (seconds * 1e9) as u64, cpus: 4, scheduler: "EEVDF".into(), ..Snapshot::default() }
    }

    fn times(path: &Path) -> Vec<u64> {
        read_lines(path).unwrap().iter().map(|s| s.at_ns / 1_000_000_000).collect()
    }

    fn place() -> (TempDir, PathBuf) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("recording");
        (dir, path)
    }

    #[test]
    fn a_recording_is_read_wherever_it_was_cut() {
        let (_dir, path) = place();
        let mut snapshot = at(1.0);
        let vm = crate::snapshot::VmCounters { name: "café·".into(), ..Default::default() };
        snapshot.vms.insert(7, vm);
        let line = serde_json::to_vec(&snapshot).unwrap();
        let all = [&line[..], b"\n", &line[..], b"\n"].concat();
        for end in line.len() + 1..=all.len() {
            fs::write(&path, &all[..end]).unwrap();
            let whole = if end + 1 < all.len() { 1 } else { 2 };
            assert_eq!(read_lines(&path).unwrap().len(), whole, "cut at {end}");
        }
    }

    #[test]
    fn a_file_stays_within_its_limit_and_keeps_its_ends() {
        let (dir, path) = place();
        let limit = 4000;
        let mut recorder = Recorder::open(&path, limit).unwrap();
        let mut now = 0.0;
        for _ in 0..400 {
            recorder.add(&at(now)).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= limit, "at {now}");
            now += recorder.step().as_secs_f64();
        }
        let times = times(&path);
        assert!(times.len() > 10 && times[0] == 0, "{times:?}");
        assert_eq!(*times.last().unwrap(), (now - recorder.step().as_secs_f64()) as u64);
        let step = recorder.step().as_secs();
        assert!(step > 8, "{step}");
        // All but the last are as far apart as they are taken now.
        assert!(times.windows(2).rev().skip(1).all(|pair| pair[1] - pair[0] >= step / 2), "{times:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_left_out_merges_intervals_exactly() {
        use crate::snapshot::{VcpuCounters, VmCounters};
        use crate::window::Window;
        let (_dir, path) = place();
        let snapshot = |n: u64| {
            let run_ns = n * n * 1_000_000;
            let vcpu = VcpuCounters { tid: 8, run_ns, wait_ns: run_ns / 2, ..VcpuCounters::default() };
            let vm = VmCounters { name: "a".into(), vcpus: [(0, vcpu)].into(), ..VmCounters::default() };
            Snapshot { vms: [(7, vm)].into(), ..at(n as f64) }
        };
        let mut recorder = Recorder::open(&path, 2000).unwrap();
        (0..30).for_each(|n| recorder.add(&snapshot(n)).unwrap());
        let kept = read_lines(&path).unwrap();
        let sum = |from: &[Snapshot]| -> f64 {
            let windows = from.windows(2).map(|pair| Window::between(&pair[0], &pair[1]));
            windows.map(|window| window.seconds * window.vms[0].run).sum()
        };
        let all: Vec<Snapshot> = (0..30).map(snapshot).collect();
        assert!(kept.len() < 15 && (sum(&kept) - sum(&all)).abs() < 1e-9, "{} {}", sum(&kept), sum(&all));
    }

    #[test]
    fn who_is_killed_loses_one_interval() {
        let (_dir, path) = place();
        let mut recorder = Recorder::open(&path, 1 << 20).unwrap();
        (0..3).for_each(|n| recorder.add(&at(f64::from(n))).unwrap());
        drop(recorder);
        let whole = fs::read(&path).unwrap();
        for torn in [1, 10, 40] {
            fs::write(&path, &whole[..whole.len() - torn]).unwrap();
            assert_eq!(times(&path).len(), if torn == 1 { 3 } else { 2 }, "{torn}");
            // And who goes on writes behind what is whole.
            let mut recorder = Recorder::open(&path, 1 << 20).unwrap();
            recorder.add(&at(0.0)).unwrap();
            assert_eq!(times(&path), [0, 1, 0], "{torn}");
        }
    }

    /// Who may write to the folder chooses what stands under the name of the file that replaces it.
    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let (dir, path) = place();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("recording.part")).unwrap();
        let mut recorder = Recorder::open(&path, 2000).unwrap();
        for nth in 0..200 {
            recorder.add(&at(f64::from(nth))).unwrap();
        }
        assert!(recorder.step() > STEP);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    }

    #[test]
    fn a_second_recording_follows_the_first_and_both_are_thinned() {
        let (_dir, path) = place();
        for _ in 0..2 {
            let mut recorder = Recorder::open(&path, 2000).unwrap();
            let mut now = 0;
            while now < 64 {
                recorder.add(&at(now as f64)).unwrap();
                now += recorder.step().as_secs();
            }
        }
        let times = times(&path);
        assert_eq!(times.iter().filter(|t| **t == 0).count(), 2, "{times:?}");
        // It goes on as coarse as it was left.
        assert!(Recorder::open(&path, 2000).unwrap().step() > STEP, "{times:?}");
    }

    #[test]
    fn the_lock_goes_with_the_recorder_though_a_child_has_the_file_still() {
        let (_dir, path) = place();
        let recorder = Recorder::open(&path, 1 << 20).unwrap();
        // What another thread starts has all files until it executes its program.
        let inherited = recorder.file.try_clone().unwrap();
        assert!(Recorder::open(&path, 1 << 20).is_err());
        drop(recorder);
        Recorder::open(&path, 1 << 20).unwrap();
        drop(inherited);
    }

    #[test]
    fn many_short_recordings_stay_within_the_limit_and_the_last_are_kept() {
        let (_dir, path) = place();
        let limit = 2000;
        for n in 0..200 {
            let mut recorder = Recorder::open(&path, limit).unwrap();
            for second in [0.0, 1.0, 2.0, 7.0 + f64::from(n)] {
                recorder.add(&at(second)).unwrap();
                assert!(fs::metadata(&path).unwrap().len() <= limit, "recording {n}");
            }
            assert_eq!(*times(&path).last().unwrap(), 7 + n as u64);
        }
        let times = times(&path);
        assert!(times.iter().filter(|at| **at == 0).count() > 3 && times[0] == 0, "{times:?}");
    }

    #[test]
    fn a_recording_that_may_be_less_than_it_is_becomes_coarser() {
        let (_dir, path) = place();
        let mut recorder = Recorder::open(&path, 1 << 20).unwrap();
        (0..400).for_each(|n| recorder.add(&at(f64::from(n))).unwrap());
        drop(recorder);
        let mut recorder = Recorder::open(&path, 4000).unwrap();
        for n in 0..100 {
            recorder.add(&at(f64::from(n))).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= 4000, "at {n}");
        }
        let times = times(&path);
        assert!(times.contains(&399) && times.iter().filter(|at| **at == 0).count() == 2, "{times:?}");
        assert!(recorder.step().as_secs() >= 8, "{:?}", recorder.step());
    }

    #[test]
    fn two_cannot_write_to_one_file_and_no_other_file_is_touched() {
        let (dir, path) = place();
        let mut first = Recorder::open(&path, 500).unwrap();
        let refused = |path: &Path| format!("{:#}", Recorder::open(path, 500).err().unwrap());
        assert!(refused(&path).contains("another process writes to it"), "{}", refused(&path));
        (0..20).for_each(|n| first.add(&at(f64::from(n))).unwrap());
        assert!(refused(&path).contains("another process writes to it"), "also when it was replaced");
        let other = dir.path().join("other");
        for text in ["root:x:0\n", "no line", "{}\n"] {
            fs::write(&other, text).unwrap();
            assert!(refused(&other).contains("it holds something else"), "{text}");
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
        }
    }

    #[test]
    fn a_full_disk_is_one_sentence() {
        let mut recorder = Recorder::open(Path::new("/dev/full"), 1000).unwrap();
        let said = format!("{:#}", recorder.add(&at(0.0)).unwrap_err());
        assert!(said.starts_with("cannot write the recording /dev/full: No space left"), "{said}");
    }
}
