// SPDX-License-Identifier: GPL-2.0-only
//! Where results go: a file for every scenario as it ends, and one page for all. Nothing that was measured is lost.

use anyhow::{Context, Result, bail};
use overbook_report::{Report, html, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Room for the results of any shipped scenario.
const ROOM: usize = 4 << 20;

/// The results of one run.
pub struct Results {
    dir: PathBuf,
    /// Folders made for it, the innermost first: they go again if nothing was kept.
    made: Vec<PathBuf>,
    /// Where a folder may be made if results cannot be written any more, the best first.
    shelters: Vec<PathBuf>,
    /// By the scenario's place on the command line.
    reports: BTreeMap<usize, Report>,
}

impl Results {
    /// Makes the folder `dir` and tries to write there.
    ///
    /// # Errors
    /// It cannot be made, or written to, or has no room.
    pub fn open(dir: &Path, shelters: Vec<PathBuf>) -> Result<Results> {
        let missing = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
        let made = missing.map(Path::to_path_buf).collect();
        // From here on, whatever is made goes again.
        let results = Results { dir: dir.into(), made, shelters, reports: BTreeMap::new() };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        check_room(dir)?;
        Ok(results)
    }

    /// Keeps a report, on disk: as the file of its scenario and in the page of all. Says where, if not where it should be.
    ///
    /// # Errors
    /// It can be written nowhere.
    pub fn keep(&mut self, nth: usize, report: Report, say: &mut dyn FnMut(&str)) -> Result<()> {
        let name = report.scenario.name.clone();
        self.reports.insert(nth, report);
        let Err(why) = self.write(&[nth]) else { return Ok(()) };
        let lost = self.dir.clone();
        for shelter in std::mem::take(&mut self.shelters) {
            let made = tempfile::Builder::new().prefix("overbook-results-").tempdir_in(&shelter);
            let Ok(made) = made else { continue };
            self.dir = made.path().into();
            // What was written before is perhaps gone too.
            if self.write(&self.reports.keys().copied().collect::<Vec<usize>>()).is_ok() {
                self.dir = made.keep();
                say(&format!("{why:#}: all results are in {} instead", self.dir.display()));
                return Ok(());
            }
        }
        self.dir = lost;
        Err(why.context(format!("the result of {name} is lost")))
    }

    fn write(&self, which: &[usize]) -> Result<()> {
        for report in which.iter().filter_map(|nth| self.reports.get(nth)) {
            json::write(&self.dir.join(format!("{}.json", report.scenario.name)), report)?;
        }
        json::write_atomically(&self.page(), &html::render_many(&self.all())?)
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The page of all scenarios that have ended.
    pub fn page(&self) -> PathBuf {
        self.dir.join("report.html")
    }

    /// The reports in the order of the command line.
    pub fn all(&self) -> Vec<&Report> {
        self.reports.values().collect()
    }
}

impl Drop for Results {
    /// Leaves no empty folder; one that holds anything stays.
    fn drop(&mut self) {
        for dir in &self.made {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Tries to write to a folder, before hours are spent on what should go there.
///
/// # Errors
/// One sentence.
pub fn check_room(dir: &Path) -> Result<()> {
    let file = dir.join(format!(".overbook-room-{}", std::process::id()));
    let attempt = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&file)?;
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()
    };
    let outcome = attempt();
    let _ = std::fs::remove_file(&file);
    outcome.with_context(|| format!("cannot write to {}", dir.display()))
}

/// Refuses scenarios whose results would have one name.
///
/// # Errors
/// Names both files.
pub fn check_names(scenarios: &[(String, &Path)]) -> Result<()> {
    for (nth, (name, file)) in scenarios.iter().enumerate() {
        if let Some((_, other)) = scenarios[..nth].iter().find(|(known, _)| known == name) {
            bail!(
                "{} and {} would both write {name}.json: rename one, or run them with one --output each",
                other.display(),
                file.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn report(name: &str) -> Report {
        let mut report = Report { schema: overbook_report::schema::SCHEMA, ..Report::default() };
        report.scenario.name = name.into();
        report.scenario.title = format!("The title of {name}");
        report
    }

    fn quiet(text: &str) {
        panic!("nothing to say: {text}");
    }

    #[test]
    fn every_result_is_there_as_soon_as_its_scenario_ends() {
        let out = TempDir::new().unwrap();
        let dir = out.path().join("made/deep");
        let mut results = Results::open(&dir, Vec::new()).unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "the attempt leaves nothing behind");
        results.keep(1, report("second"), &mut quiet).unwrap();
        assert!(json::read(&dir.join("second.json")).is_ok() && !dir.join("first.json").exists());
        let page = std::fs::read_to_string(results.page()).unwrap();
        assert!(page.contains("The title of second") && !page.contains("The title of first"));
        results.keep(0, report("first"), &mut quiet).unwrap();
        let page = std::fs::read_to_string(results.page()).unwrap();
        let places = ["first", "second"].map(|name| page.find(&format!("The title of {name}")).unwrap());
        assert!(places[0] < places[1], "in the order of the command line");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 3, "and no temporary files");
    }

    #[test]
    fn a_folder_that_was_made_for_nothing_goes_again() {
        let out = TempDir::new().unwrap();
        let (there, deep) = (out.path().join("there"), out.path().join("made/deep"));
        std::fs::create_dir(&there).unwrap();
        drop(Results::open(&there, Vec::new()).unwrap());
        drop(Results::open(&deep, Vec::new()).unwrap());
        assert!(there.exists() && !out.path().join("made").exists());
        let mut results = Results::open(&deep, Vec::new()).unwrap();
        results.keep(0, report("only"), &mut quiet).unwrap();
        drop(results);
        assert!(deep.join("only.json").exists());
    }

    #[test]
    fn results_of_a_vanished_folder_go_to_a_named_place() {
        let (out, shelter) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let dir = out.path().join("results");
        let shelters = vec![PathBuf::from("/nonexistent"), shelter.path().into()];
        let mut results = Results::open(&dir, shelters).unwrap();
        results.keep(0, report("first"), &mut quiet).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let mut said = String::new();
        results.keep(1, report("second"), &mut |text| said += text).unwrap();
        assert!(results.dir().starts_with(shelter.path()));
        assert!(
            said.contains(&results.dir().display().to_string()) && said.contains("cannot write"),
            "{said}"
        );
        for name in ["first", "second"] {
            json::read(&results.dir().join(format!("{name}.json"))).unwrap();
        }
        results.keep(2, report("third"), &mut quiet).unwrap();
        assert!(results.page().starts_with(shelter.path()) && results.page().exists());
    }

    #[test]
    fn what_can_be_written_nowhere_is_said_and_remembered() {
        let out = TempDir::new().unwrap();
        let dir = out.path().join("results");
        let mut results = Results::open(&dir, vec!["/nonexistent".into()]).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let error = results.keep(0, report("only"), &mut quiet).unwrap_err();
        assert!(format!("{error:#}").starts_with("the result of only is lost: cannot write"), "{error:#}");
        assert_eq!(results.all().len(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_found_at_once() {
        for dir in ["/proc/overbook", "/dev/null/results", "/proc/self"] {
            let error = Results::open(Path::new(dir), Vec::new()).err().map(|e| format!("{e:#}"));
            let error = error.expect("refused");
            assert!(error.starts_with("cannot ") && error.contains(dir), "{error}");
            assert_eq!(error.matches(dir).count(), 1, "{error}");
        }
    }

    #[test]
    fn two_results_of_one_name_are_refused() {
        let files = [("a".to_string(), Path::new("x/a.toml")), ("b".into(), Path::new("b.toml"))];
        check_names(&files).unwrap();
        let twice = [&files[..], &[("a".to_string(), Path::new("y/a.toml"))]].concat();
        let error = check_names(&twice).unwrap_err().to_string();
        assert!(error.contains("x/a.toml and y/a.toml would both write a.json"), "{error}");
    }
}
