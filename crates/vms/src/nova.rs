// SPDX-License-Identifier: GPL-2.0-only
//! What Nova tells libvirt of an instance, in libvirt's status file of a domain that runs (`/run/libvirt/qemu/NAME.xml`).

use roxmltree::{Document, Node};

/// An instance of OpenStack, as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its display name.
    pub name: String,
    /// Name of its project; empty if Nova does not tell.
    pub project: String,
}

/// The instance in a status file, if that is of this process and Nova has written there.
pub fn instance(status: &str, pid: u32) -> Option<Instance> {
    let document = Document::parse(status).ok()?;
    // A VM of another libvirt, in a container perhaps, may have a namesake here.
    if document.root_element().attribute("pid") != Some(pid.to_string().as_str()) {
        return None;
    }
    let is_novas = |node: &Node| node.tag_name().namespace().is_some_and(|ns| ns.contains("openstack.org"));
    let inside = |node: Node, tag: &str| {
        let found = node.descendants().filter(is_novas).find(|node| node.tag_name().name() == tag)?;
        Some(found.text()?.trim().to_string()).filter(|text| !text.is_empty())
    };
    let nova = document.descendants().filter(is_novas).find(|node| node.tag_name().name() == "instance")?;
    let name = inside(nova, "name")?;
    Some(Instance { name, project: inside(nova, "project").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Nova and libvirt write it, without what is of no interest here.
    const STATUS: &str = "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE. CHANGES TO IT ARE LIKELY TO BE\n-->\n\
        <domstatus state='running' reason='booted' pid='4321'>\n  <monitor path='/var/lib/libvirt/qemu/domain-3-instance-0000002a/monitor.sock' type='unix'/>\n  \
        <domain type='kvm' id='3'>\n    <name>instance-0000002a</name>\n    <uuid>09461f0b-297b-4ef5-9053-dd369c86b96b</uuid>\n    \
        <metadata>\n      <nova:instance xmlns:nova=\"http://openstack.org/xmlns/libvirt/nova/1.1\">\n        \
        <nova:package version=\"29.2.0\"/>\n        <nova:name>shop &amp; till</nova:name>\n        \
        <nova:creationTime>2026-05-11 09:01:22</nova:creationTime>\n        <nova:flavor name=\"m1.large\">\n          \
        <nova:memory>8192</nova:memory>\n          <nova:vcpus>4</nova:vcpus>\n        </nova:flavor>\n        <nova:owner>\n          \
        <nova:user uuid=\"5a\">alice</nova:user>\n          <nova:project uuid=\"c4\">web</nova:project>\n        </nova:owner>\n      \
        </nova:instance>\n    </metadata>\n  </domain>\n</domstatus>\n";

    #[test]
    fn an_instance_is_named_as_its_owner_named_it() {
        let expected = Instance { name: "shop & till".into(), project: "web".into() };
        assert_eq!(instance(STATUS, 4321), Some(expected));
        // Not this VM's file, not Nova's, not whole, not a file of this kind.
        assert_eq!(instance(STATUS, 4322), None);
        assert_eq!(instance(&STATUS.replace("openstack.org", "example.org"), 4321), None);
        assert_eq!(instance(&STATUS[..STATUS.len() / 2], 4321), None);
        for text in ["", "<a", "<domstatus pid='4321'/>"] {
            assert_eq!(instance(text, 4321), None, "{text}");
        }
        let unnamed = STATUS.replace("<nova:project uuid=\"c4\">web</nova:project>", "");
        assert_eq!(instance(&unnamed, 4321).unwrap().project, "");
    }
}
