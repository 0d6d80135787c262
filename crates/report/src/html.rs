// SPDX-License-Identifier: GPL-2.0-only
//! A page that needs no network.

mod figures;
mod origin;
pub mod plain;

use crate::columns;
use crate::format::repetitions;
use crate::schema::Report;
use crate::summary::{self, Row};
use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("html/style.css");

/// The page of one report.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(report: &Report) -> Result<String> {
    render_many(&[report])
}

/// One page for several reports.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render_many(reports: &[&Report]) -> Result<String> {
    let sections = reports.iter().map(|report| section(report)).collect::<Result<Vec<Markup>>>()?;
    let title = match reports {
        [one] => format!("Overbook lab: {}", one.scenario.name),
        many => format!("Overbook lab: {} scenarios", many.len()),
    };
    let body = html! {
        header { h1 { (title) } (overview(reports)) }
        @for (nth, section) in sections.iter().enumerate() { section id={ "s" (nth) } { (section) } }
    };
    Ok(page(&title, &body))
}

/// A page around its body.
fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// The result: in a sentence, and in a row for each scenario and variant.
fn overview(reports: &[&Report]) -> Markup {
    let outcomes = summary::outcomes(reports);
    let rows: Vec<Row> = outcomes.iter().map(|outcome| outcome.row.clone()).collect();
    let shown = columns::telling(&columns::WORK, &rows);
    html! {
        @for sentence in summary::headline(&outcomes) { p.lead { (sentence) "." } }
        @if !outcomes.is_empty() {
            div.scroll { table {
                thead { tr {
                    th.l { (columns::SCENARIO.0) } th.l { (columns::VARIANT.0) }
                    @for column in &shown { th title=(column.means) { (column.name) } }
                } }
                tbody { @for (nth, outcome) in outcomes.iter().enumerate() {
                    @let again = nth > 0 && outcomes[nth - 1].name == outcome.name;
                    tr.first[nth > 0 && !again].base[outcome.row.is_baseline] {
                        td.l { @if !again { a href={ "#s" (outcome.scenario) } { (outcome.name) } } }
                        td.l { (outcome.row.variant) }
                        @for column in &shown { td { ((column.cell)(&outcome.row)) } }
                    }
                } }
            } }
            (words([columns::SCENARIO, columns::VARIANT].into_iter().chain(figures::meanings(&shown))))
        }
        @for (nth, report) in reports.iter().enumerate() {
            @if !crate::table::alarms(report).is_empty() {
                p.alarm { a href={ "#s" (nth) } { (report.scenario.title) } ": with complaints" }
            }
        }
    }
}

/// Words and what they mean; those without a meaning say it themselves.
fn words<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        dl.words { @for (word, means) in entries.into_iter().filter(|(_, means)| !means.is_empty()) {
            div { dt { (word) } dd { (means) } }
        } }
    }
}

fn section(report: &Report) -> Result<Markup> {
    let rows = summary::rows(report);
    let scenario = &report.scenario;
    let figures = if rows.is_empty() {
        html! { p { "No run to show." } }
    } else {
        figures::all(report, &rows)?
    };
    Ok(html! {
        h1 { (scenario.title) }
        p.about {
            (scenario.name) ": " (format!("{:.2}", scenario.overcommit)) " vCPUs per CPU on " (report.machine.cpus)
            " CPUs, Linux " (report.machine.kernel) ", placement " (scenario.placement) ", cgroups " (scenario.cgroups)
            @if !rows.is_empty() { ". " (repetitions(&rows)) }
        }
        (alarms(report))
        @if !rows.is_empty() { (figures::main_table(&rows)) }
        (figures)
        (origin::instrument(report))
        (origin::machine(report))
        h2 { "Scenario" }
        pre { (scenario.text) }
    })
}

fn alarms(report: &Report) -> Markup {
    let text = crate::table::alarms(report);
    html! { @if !text.is_empty() { div.alarm role="alert" { strong { "Read this first" } pre { (text) } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_escape_their_text() {
        let mut report = summary::sample();
        report.variants[1].name = "<ours>".into();
        report
            .runs
            .iter_mut()
            .filter(|run| run.variant == "ours")
            .for_each(|run| run.variant = "<ours>".into());
        let page = render(&report).unwrap();
        assert!(page.contains("A &lt;sample&gt;") && !page.contains("<sample>"));
        assert!(page.contains("&lt;ours&gt;") && !page.contains("<ours>"), "plots escape their text, too");
        assert!(page.matches("<svg").count() >= 3);
        for outside in ["src=", "@import", "url(", "<link", "<script"] {
            assert!(!page.contains(outside), "the page reaches outside: {outside}");
        }
    }

    #[test]
    fn a_failure_without_runs_still_has_a_page() {
        let failure = crate::schema::Failure { reason: "boom".into(), console: Vec::new() };
        let report = Report { failure: Some(failure), ..Report::default() };
        assert!(render(&report).unwrap().contains("boom"));
    }

    #[test]
    fn figures_of_nothing_do_not_break_the_page() {
        let mut report = summary::sample();
        for vm in report.runs.iter_mut().flat_map(|run| &mut run.vms) {
            *vm = crate::schema::VmResult { name: vm.name.clone(), ..Default::default() };
        }
        let page = render(&report).unwrap();
        assert!(!page.contains("NaN") && !page.contains("inf"), "no figure of nothing");
    }

    #[test]
    fn pages_begin_with_their_result() {
        let mut second = summary::sample();
        second.scenario.name = "second".into();
        let page = render_many(&[&summary::sample(), &second]).unwrap();
        assert!(page.contains("2 scenarios") && page.contains("href=\"#s1\"") && page.contains("id=\"s1\""));
        let sentence = "ours against eevdf: more work each time in sample (1.400), second (1.400).";
        assert!(page.find(sentence).unwrap() < page.find("<section").unwrap());
    }

    #[test]
    fn columns_are_explained_and_zeros_are_hidden() {
        let page = render(&summary::sample()).unwrap();
        assert!(page.contains("<dt>of bound</dt>") && page.contains("<dt>won back</dt>"));
        assert!(!page.contains("<th>moves</th>") && !page.contains(">same rq<"), "all zero in the sample");
        assert!(!page.contains("context switches per s"), "a counter that is zero throughout");
    }

    /// What stands between two marks, each time.
    fn between<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
        page.split(from).skip(1).filter_map(|rest| rest.split(to).next()).collect()
    }

    #[test]
    fn every_column_of_a_page_is_explained_beside_its_table() {
        let mut report = summary::sample();
        for run in &mut report.runs {
            run.extra.insert("overbook: VMs asked".into(), 5.0);
            run.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).for_each(|vcpu| vcpu.spins = 7);
        }
        let page = render_many(&[&report, &report]).unwrap();
        // Of a table's own section: the words that follow it, up to the next table.
        for table in page.split("<table").skip(1) {
            let (heads, after) = table.split_once("<thead>").unwrap().1.split_once("</thead>").unwrap();
            let words = between(after, "<dt>", "</dt>");
            for head in between(heads, "<th", "</th>") {
                let name = head.split_once('>').unwrap().1;
                let is_variant = report.variants.iter().any(|v| v.name == name);
                assert!(is_variant || words.contains(&name), "{name:?} is not explained: {words:?}");
            }
        }
    }

    #[test]
    fn every_colour_of_a_page_is_explained() {
        let mut report = summary::sample();
        let turn = &mut report.instrument.as_mut().unwrap().turns[0];
        (turn.p50_ns, turn.limit_ns) = (9, 5);
        let page = render(&report).unwrap();
        let first_plot = page.find("<svg").unwrap();
        for variant in &report.variants {
            let swatch = format!("background:{}", crate::plot::css_colour(&report, &variant.name));
            assert!(page.find(&swatch).is_some_and(|place| place < first_plot), "{}", variant.name);
        }
        assert!(page.contains("base\"><td") && page.contains("in grey is the baseline"));
        assert!(page.contains("class=\"bad\"") && page.contains("Red: over its limit"));
        let calm = render(&summary::sample()).unwrap();
        assert!(!calm.contains("Red: over its limit"), "what is not shown is not explained");
    }
}
