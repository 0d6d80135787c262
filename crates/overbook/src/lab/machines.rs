// SPDX-License-Identifier: GPL-2.0-only
//! What the lab boots: which kernels there are, which emulator, and which schedulers of others.

use anyhow::Result;
use overbook_cli::output::{Stdout, note};
use overbook_kernels::patched::{self, Patches};
use overbook_kernels::rivals::{self, RIVALS};
use overbook_kernels::{Cache, Emulator, Want};
use overbook_report::table;
use std::io::Write;
use std::path::Path;

/// Lists kernels, after those of some series were fetched; those with the project's patches are built.
pub fn kernels(fetch: &[String], update: bool) -> Result<()> {
    let cache = Cache::open_default()?;
    let mut say = |text: &str| note(text);
    let mut failures = Vec::new();
    let find = if update { overbook_kernels::update } else { overbook_kernels::resolve };
    // What is wrong is said before minutes are spent.
    let (mut patched, mut plain) = (Vec::new(), Vec::new());
    for series in fetch {
        match Patches::named(series) {
            Some(patches) => patched.push(patches?),
            None => plain.push(series),
        }
    }
    for series in plain {
        let want = Want { series: Some(series.clone()), ..Want::default() };
        if let Err(e) = find(&want, &cache, &mut say) {
            failures.push(e);
        }
    }
    failures.extend(patched::build(&patched, update, &cache, &mut say).err());
    let rows = overbook_kernels::list(&cache, &mut say)?.into_iter().map(|row| {
        let verdict = match row.verdict {
            Some(Ok(facts)) => match facts.hz {
                Some(hz) => format!("ok ({hz} Hz)"),
                None => "ok (its configuration is not known)".into(),
            },
            Some(Err(why)) => format!("no: {why}"),
            None => "not fetched".into(),
        };
        vec![row.release, row.origin, verdict]
    });
    writeln!(Stdout, "{}", table::plain(&["kernel", "origin", "suitable"], 3, rows))?;
    // The last is the command's own.
    let last = failures.pop();
    failures.iter().for_each(|e| note(format!("{e:#}")));
    last.map_or(Ok(()), Err)
}

/// Unpacks the source of kernels that the project's patches are for.
pub fn kernel_source(series: &str, to: &Path) -> Result<()> {
    patched::source(series, to, &Cache::open_default()?, &mut |text| note(text))
}

/// Says which emulator is used, after it was built if that is wanted.
pub fn emulator(build: bool) -> Result<()> {
    let cache = Cache::open_default()?;
    let found = if build {
        overbook_kernels::emulator::build(&cache, &mut |text| note(text))?
    } else {
        Emulator::find(&cache)?
    };
    let why = match found.patched {
        true => "built from Debian's source, in the cache",
        false => {
            "the system's own: in it every PAUSE of a guest exits, and Linux guests hang or die, so only bare-metal \
             guests are measured. `overbook lab emulator --build` builds the lab's own"
        }
    };
    writeln!(Stdout, "{found} ({}): {why}", found.program.display())?;
    Ok(())
}

/// Lists schedulers of others, after these were built if that is wanted.
pub fn rivals(build: bool, names: &[String]) -> Result<()> {
    let cache = Cache::open_default()?;
    if build {
        rivals::build(&cache, names, &mut |text| note(text))?;
    }
    let rows = RIVALS.into_iter().map(|(name, version)| {
        let state = if rivals::is_built(&cache, name) { "built" } else { "not built" };
        vec![name.into(), version.into(), state.into()]
    });
    writeln!(Stdout, "{}", table::plain(&["scheduler", "version", ""], 3, rows))?;
    Ok(())
}
