// SPDX-License-Identifier: GPL-2.0-only
//! Shapes of the machine that `overbook lab guest` boots: topologies that guests have.

use crate::scenario::Host;

/// A machine.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, in short.
    pub about: &'static str,
    cpus: u32,
    /// Sockets, each with a last-level cache.
    sockets: u32,
    nodes: u32,
    smt: u32,
    /// What the kernel's command line says besides.
    pub arguments: &'static str,
    /// CPUs of a cpuset that some tasks are in; none if empty.
    pub cpuset: &'static str,
    /// CPUs that a cpuset isolates.
    pub isolated: &'static str,
}

const PLAIN: Shape = Shape {
    name: "",
    about: "",
    cpus: 4,
    sockets: 1,
    nodes: 1,
    smt: 1,
    arguments: "",
    cpuset: "",
    isolated: "",
};

/// All shapes. The first is that of the long check: everything that `overbook guest` promises; the others pack, and go
/// back.
pub const SHAPES: [Shape; 7] = [
    Shape { name: "cores", about: "two cores of two siblings", smt: 2, ..PLAIN },
    Shape {
        name: "sockets",
        about: "four sockets of one CPU, as libvirt has it by default",
        sockets: 4,
        ..PLAIN
    },
    Shape { name: "sockets-16", about: "sixteen sockets of one CPU", cpus: 16, sockets: 16, ..PLAIN },
    Shape { name: "caches", about: "two last-level caches of four CPUs", cpus: 8, sockets: 2, ..PLAIN },
    Shape {
        name: "nodes",
        about: "two NUMA nodes of two cores of two siblings",
        cpus: 8,
        sockets: 2,
        nodes: 2,
        smt: 2,
        ..PLAIN
    },
    Shape {
        name: "isolated",
        about: "five CPUs, one isolated by a cpuset, the last without ticks",
        cpus: 5,
        arguments: "nohz_full=4",
        isolated: "1",
        ..PLAIN
    },
    Shape {
        name: "cpuset",
        about: "four CPUs, and tasks in a cpuset of the last two",
        cpuset: "2-3",
        ..PLAIN
    },
];

impl Shape {
    /// The shape of a name.
    pub fn named(name: &str) -> Option<Shape> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// The machine. Nothing there is measured in microseconds, so turns may be long, and it takes half the time.
    pub fn host(&self) -> Host {
        Host {
            cpus: self.cpus,
            llcs: self.sockets,
            nodes: self.nodes,
            smt: self.smt,
            turn_us: Some(500),
            ..Host::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_told_apart_and_can_be_built() {
        for shape in SHAPES {
            assert_eq!(SHAPES.iter().filter(|other| other.name == shape.name).count(), 1);
            assert!(!shape.about.is_empty());
            let host = shape.host();
            assert_eq!(host.cpus % (host.llcs * host.smt), 0, "{}", shape.name);
            assert_eq!(host.llcs % host.nodes, 0, "{}", shape.name);
        }
        assert!(Shape::named("nonsense").is_none());
    }
}
