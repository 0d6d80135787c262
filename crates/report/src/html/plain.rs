// SPDX-License-Identifier: GPL-2.0-only
//! A page of other figures than the lab's: sentences, plots, tables.

use super::{page, words};
use maud::{Markup, PreEscaped, html};

/// A plot or a table, under a heading.
#[derive(Clone, Debug)]
pub enum Part {
    /// A picture.
    Plot {
        /// Heading.
        title: &'static str,
        /// The picture.
        svg: String,
        /// Colours and what they stand for.
        legend: Vec<(String, String)>,
        /// What to see in it.
        note: &'static str,
    },
    /// A table.
    Table {
        /// Heading.
        title: &'static str,
        /// Columns, and what they are.
        columns: Vec<(&'static str, &'static str)>,
        /// Rows.
        rows: Vec<Vec<String>>,
    },
}

/// A page that needs no network. The first sentence is the result.
pub fn render(title: &str, sentences: &[String], parts: &[Part]) -> String {
    let body = html! {
        header {
            h1 { (title) }
            @for (nth, sentence) in sentences.iter().enumerate() {
                p.lead[nth == 0].about[nth > 0] { (sentence) "." }
            }
        }
        @for one in parts { (part(one)) }
    };
    page(title, &body)
}

fn part(part: &Part) -> Markup {
    match part {
        Part::Plot { title, svg, legend, note } => html! {
            h2 { (title) }
            ul.legend { @for (colour, name) in legend { li { i.swatch style={ "background:" (colour) } {} (name) } } }
            div.scroll { (PreEscaped(svg)) }
            p.note { (note) }
        },
        Part::Table { title, columns, rows } => html! {
            h2 { (title) }
            div.scroll { table.narrow {
                thead { tr { @for (nth, (name, _)) in columns.iter().enumerate() { th.l[nth == 0] { (name) } } } }
                tbody { @for row in rows { tr {
                    @for (nth, cell) in row.iter().enumerate() { td.l[nth == 0] { (cell) } }
                } } }
            } }
            (words(columns.iter().copied()))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_escapes_its_text_and_reaches_nowhere() {
        let parts = [
            Part::Plot {
                title: "Plot",
                svg: "<svg></svg>".into(),
                legend: vec![("#fff".into(), "<b>".into())],
                note: "n",
            },
            Part::Table {
                title: "Table",
                columns: vec![("VM", "which"), ("part", "of all")],
                rows: vec![vec!["<vm>".into(), "1".into()]],
            },
        ];
        let page = render("<title>", &["One".into(), "Two".into()], &parts);
        assert!(page.contains("&lt;vm&gt;") && page.contains("&lt;b&gt;") && !page.contains("<vm>"));
        assert!(page.contains("<dt>part</dt>") && page.contains("One.</p>"));
        for outside in ["src=", "@import", "url(", "<link", "<script"] {
            assert!(!page.contains(outside), "the page reaches outside: {outside}");
        }
    }
}
