// SPDX-License-Identifier: GPL-2.0-only
//! What class a libvirt domain asks for: an element of ours in the `<metadata>` of its XML, which libvirt keeps and does not
//! read.
//!
//! ```xml
//! <metadata>
//!   <overbook:class xmlns:overbook="urn:overbook">latency</overbook:class>
//! </metadata>
//! ```

use anyhow::{Context, Result, bail};
use roxmltree::{Document, Node};

/// The namespace of the element; its prefix may be any.
pub const NAMESPACE: &str = "urn:overbook";

const CLASSES: [&str; 3] = ["latency", "normal", "batch"];

/// `UUID=CLASS`, as `overbook host --class` takes it; nothing where a domain asks for none. A status file of libvirt, which has
/// the domain in it, will do too.
///
/// # Errors
/// It is no domain's XML, or asks for a class that there is not; one sentence.
pub fn asked(xml: &str) -> Result<Option<String>> {
    let document = Document::parse(xml).context("standard input holds no XML of a libvirt domain")?;
    let domain = document.descendants().find(|node| node.has_tag_name("domain"));
    let Some(domain) = domain else { bail!("standard input holds no XML of a libvirt domain") };
    let child = |tag: &str| domain.children().find(|node| node.has_tag_name(tag));
    let is_ours = |node: &Node| node.has_tag_name((NAMESPACE, "class"));
    let Some(class) = child("metadata").and_then(|metadata| metadata.children().find(is_ours)) else {
        return Ok(None);
    };
    let class = class.text().unwrap_or_default().trim();
    let uuid = child("uuid").and_then(|uuid| uuid.text()).map(str::trim).unwrap_or_default();
    if uuid.is_empty() {
        bail!("the domain has no <uuid>");
    }
    if !CLASSES.contains(&class) {
        bail!("the domain {uuid} asks for the class {class:?}: there are {}", CLASSES.join(", "));
    }
    Ok(Some(format!("{uuid}={class}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0";

    fn domain(metadata: &str) -> String {
        format!(
            "<domain type='kvm'>\n  <name>web=1</name>\n  <uuid>{UUID}</uuid>\n  <title>A &lt;title&gt;</title>\n  \
             {metadata}\n  <memory unit='KiB'>1048576</memory>\n</domain>\n"
        )
    }

    #[test]
    fn a_domain_gets_what_it_asks_for() {
        let class =
            "<metadata><overbook:class xmlns:overbook='urn:overbook'>batch</overbook:class></metadata>";
        let among = "<metadata>\n <app:x xmlns:app='urn:y'><class>normal</class></app:x>\n \
                     <class xmlns=\"urn:overbook\">\n latency </class></metadata>";
        for (metadata, expected) in [(class, Some("batch")), (among, Some("latency")), ("", None)] {
            let expected = expected.map(|class| format!("{UUID}={class}"));
            assert_eq!(asked(&domain(metadata)).unwrap(), expected, "{metadata}");
            let status =
                format!("<!--\nWARNING\n-->\n<domstatus state='running'>{}</domstatus>", domain(metadata));
            assert_eq!(asked(&status).unwrap(), expected, "{status}");
        }
    }

    #[test]
    fn the_same_words_elsewhere_ask_for_nothing() {
        let class = "<overbook:class xmlns:overbook='urn:overbook'>batch</overbook:class>";
        for text in [
            format!("<metadata><!-- {class} --></metadata>"),
            "<metadata><class>batch</class></metadata>".into(),
            "<metadata><class xmlns='urn:other'>batch</class></metadata>".into(),
            format!("<metadata><a:b xmlns:a='urn:a'>{class}</a:b></metadata>"),
            format!("<description><![CDATA[{class}]]></description>"),
        ] {
            assert_eq!(asked(&domain(&text)).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |xml: &str| format!("{:#}", asked(xml).unwrap_err());
        let fast = domain("<metadata><class xmlns='urn:overbook'>fast</class></metadata>");
        assert!(said(&fast).contains("\"fast\": there are latency, normal, batch"), "{}", said(&fast));
        let nameless = fast.replace(&format!("<uuid>{UUID}</uuid>"), "");
        assert!(said(&nameless).contains("no <uuid>"));
        for xml in ["", "<domain>", "<network/>"] {
            assert!(said(xml).contains("no XML of a libvirt domain"), "{xml}");
        }
    }
}
