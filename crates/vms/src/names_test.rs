// SPDX-License-Identifier: GPL-2.0-only
//! Command lines and cgroups as each stack makes them, shortened where nothing is told.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split('|').map(str::to_string).collect()
}

/// Who the VM of a command line (words parted by `|`) in a cgroup is; no status file is there.
fn who(line: &str, cgroup: &str) -> Identity {
    let facts = Facts { pid: 4321, words: &words(line), cgroup, comm: "qemu-system-x86\n" };
    identity(&facts, &|_| None)
}

fn is(name: &str, namespace: &str, id: &str, stack: Stack) -> Identity {
    Identity { name: name.into(), namespace: namespace.into(), id: id.into(), stack }
}

const UUID: &str = "09461f0b-297b-4ef5-9053-dd369c86b96b";
const SECRET: &str = r#"-object|{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/qemu/domain-6-web/master-key.aes"}"#;

#[test]
fn a_domain_of_libvirt() {
    let line =
        format!("/usr/bin/qemu-system-x86_64|-name|guest=web,debug-threads=on|-S|{SECRET}|-uuid|{UUID}");
    let scope = r"0::/machine.slice/machine-qemu\x2d6\x2dweb.scope/libvirt/emulator";
    assert_eq!(who(&line, scope), is("web", "", UUID, Stack::Libvirt));
    // Without systemd-machined, or in a user's own session.
    assert_eq!(who(&line, "0::/user.slice/user-1000.slice/session-3.scope").stack, Stack::Libvirt);
    // The scope tells what a command line does not.
    let scope = r"0::/machine.slice/machine-qemu\x2d18\x2dDroplet\x2d7572850.scope/emulator";
    assert_eq!(who("qemu-system-x86_64|-m|1G", scope), is("Droplet-7572850", "", "", Stack::Libvirt));
    assert_eq!(who(&line.replace("guest=web", "guest=a,,b"), scope).name, "a,b");
}

#[test]
fn a_vmi_of_kubevirt() {
    let line = format!(
        "/usr/libexec/qemu-kvm|-name|guest=shop_till-0,debug-threads=on|-S|-uuid|{UUID}|-smbios|type=1,manufacturer=KubeVirt,product=None,uuid={UUID},family=KubeVirt"
    );
    let pod = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5c6fa8f7_c3f6_4b3f_b596_d16ea3912302.slice/cri-containerd-2b1c.scope";
    assert_eq!(who(&line, pod), is("till-0", "shop", UUID, Stack::KubeVirt));
    assert_eq!(who(&line, pod).to_string(), "shop/till-0");
    // A product made of it has a name of its own there.
    let other = line.replace("KubeVirt", "Red Hat") + "|" + SECRET;
    let crio = "0::/kubepods.slice/kubepods-pod5c6f.slice/crio-2b1c.scope/container";
    assert_eq!(who(&other, crio).to_string(), "shop/till-0");
    // A VM of something else in a pod is none.
    assert_eq!(
        who("/usr/bin/qemu-system-x86_64|-name|sandbox-2b1c,debug-threads=on", crio).stack,
        Stack::Qemu
    );
}

#[test]
fn an_instance_of_openstack() {
    let line = format!(
        "/usr/bin/qemu-system-x86_64|-name|guest=instance-0000002a,debug-threads=on|-uuid|{UUID}|-smbios|type=1,manufacturer=OpenStack Foundation,product=OpenStack Nova,version=21.1.0,serial={UUID},uuid={UUID},family=Virtual Machine"
    );
    let scope = r"0::/machine.slice/machine-qemu\x2d3\x2dinstance\x2d0000002a.scope/libvirt/emulator";
    assert_eq!(who(&line, scope), is("instance-0000002a", "", UUID, Stack::OpenStack));
    let status = |domain: &str| {
        assert_eq!(domain, "instance-0000002a");
        Some(
            "<domstatus pid='4321'><domain><metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
             <nova:name>till</nova:name><nova:owner><nova:project uuid='c4'>shop</nova:project></nova:owner>\
             </nova:instance></metadata></domain></domstatus>"
                .to_string(),
        )
    };
    let facts = Facts { pid: 4321, words: &words(&line), cgroup: scope, comm: "" };
    assert_eq!(identity(&facts, &status), is("till", "shop", UUID, Stack::OpenStack));
    // The file of another process says nothing of this one.
    assert_eq!(identity(&Facts { pid: 1, ..facts }, &status).name, "instance-0000002a");
}

#[test]
fn a_vm_of_proxmox() {
    let line = "/usr/bin/kvm|-id|100|-name|web01,debug-threads=on|-no-shutdown|-smbios|type=1,uuid=18dfa228-cb4d-4ced-af3e-cc670d8e0cdc";
    assert_eq!(who(line, "0::/qemu.slice/100.scope\n"), is("web01", "", "100", Stack::Proxmox));
    assert_eq!(who("/usr/bin/kvm|-m|1G", "0::/qemu.slice/104.scope"), is("104", "", "104", Stack::Proxmox));
    assert_eq!(who(line, "0::/system.slice/pve-guests.service").id, "100");
}

#[test]
fn a_vm_of_nobody() {
    let home = "0::/user.slice/user-1000.slice/session-3.scope";
    assert_eq!(who("qemu-system-x86_64|-name|web1|-m|1G", home), is("web1", "", "", Stack::Qemu));
    assert_eq!(who("qemu-system-x86_64|-name|process=x,guest=web1", home).name, "web1");
    assert_eq!(who("/usr/bin/qemu-system-x86_64|-m|1G", home), is("qemu-system-x86", "", "", Stack::Qemu));
    assert_eq!(who("qemu-system-x86_64|-name", home).name, "qemu-system-x86");
    assert_eq!(who("/usr/bin/firecracker|--id|fn-7", home), is("fn-7", "", "", Stack::Other));
    // Whoever names a VM does not write to root's terminal, nor lines of a journal.
    let name = format!("a\u{1b}]0;x\u{7}\nb{}", "c".repeat(300));
    let shown = who(&format!("/usr/bin/firecracker|--id|{name}"), home).name;
    assert!(shown.starts_with("a·]0;x··bccc") && shown.chars().count() == 253, "{shown}");
    let turned = who("qemu-system-x86_64|-name|guest=\u{202e}toor\u{2069}\u{200f}", home).name;
    assert_eq!(turned, "·toor··");
    // Gone before it was looked at.
    assert_eq!(identity(&Facts::default(), &|_| None).name, "gone");
    assert_eq!(of(std::process::id()).stack, Stack::Other);
}

#[test]
fn escapes_of_systemd_are_undone_and_nothing_else() {
    for (text, plain) in [
        (r"a\x2db", "a-b"),
        (r"\x5cx2d", r"\x2d"),
        (r"a\x2", r"a\x2"),
        (r"\xzz", r"\xzz"),
        (r"caf\xc3\xa9", "café"),
        ("", ""),
        (r"\", r"\"),
    ] {
        assert_eq!(unescape(text), plain, "{text}");
    }
}

#[test]
fn a_scope_of_another_machine_names_none() {
    for cgroup in [
        "0::/machine.slice/machine-fedora.scope",
        r"0::/machine.slice/machine-qemu\x2dx\x2dweb.scope",
        r"0::/machine.slice/machine-qemu\x2d7\x2d.scope",
        "0::/machine.slice/machine-qemu.scope",
        "0::/",
        "",
    ] {
        assert_eq!(scope_name(cgroup), None, "{cgroup}");
    }
    assert_eq!(scope_name(r"0::/machine.slice/machine-qemu\x2d1\x2da.b\x2dc.scope/x").unwrap(), "a.b-c");
    assert_eq!(scope_name("0::/machine.slice/machine-qemu-3-fedora.scope").unwrap(), "fedora");
}
