// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs share a queue: those of a last-level cache, as far as caches say anything.
//!
//! A guest's topology is often made up: without `<topology>`, libvirt gives every vCPU a socket and a cache of its own. A
//! queue each would part what belongs together. So a node all of whose caches are of one core each counts as one domain.
//! Where there are more domains than the scheduler has queues for, neighbours share one.

use scx_utils::{Core, Topology};

/// All cores of a machine. `Topology::all_cores` has one per core number, and some machines give the cores of several
/// caches the same numbers.
pub fn cores(topology: &Topology) -> impl Iterator<Item = &Core> {
    topology.all_llcs.values().flat_map(|llc| llc.cores.values()).map(AsRef::as_ref)
}

/// CPUs of one core, of a cache and a node.
#[derive(Clone, Debug)]
pub struct CoreAt {
    /// Any number that cores with the same last-level cache have in common, and others of the node do not.
    pub llc: usize,
    /// NUMA node.
    pub node: usize,
    /// Its CPUs.
    pub cpus: Vec<usize>,
}

/// A set of CPUs with a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// NUMA node; of several, the first.
    pub node: usize,
    /// Its CPUs.
    pub cpus: Vec<usize>,
}

/// Domains of these cores, at most so many, in the order of nodes and first CPUs. Without cores there is none.
pub fn domains(cores: &[CoreAt], most: usize) -> Vec<Domain> {
    let mut cores: Vec<&CoreAt> = cores.iter().collect();
    cores.sort_by_key(|core| (core.node, core.cpus.first().copied()));
    let mut found: Vec<(usize, Domain)> = Vec::new();
    for core in &cores {
        let of_node = cores.iter().filter(|other| other.node == core.node);
        let mut llcs: Vec<usize> = of_node.clone().map(|other| other.llc).collect();
        llcs.sort_unstable();
        llcs.dedup();
        // As many caches as cores.
        let key = if llcs.len() == of_node.count() { usize::MAX } else { core.llc };
        match found.iter_mut().find(|(known, domain)| *known == key && domain.node == core.node) {
            Some((_, domain)) => domain.cpus.extend(&core.cpus),
            None => found.push((key, Domain { node: core.node, cpus: core.cpus.clone() })),
        }
    }
    let each = found.len().div_ceil(most.max(1)).max(1);
    found
        .chunks(each)
        .map(|neighbours| Domain {
            node: neighbours[0].1.node,
            cpus: neighbours.iter().flat_map(|(_, domain)| domain.cpus.clone()).collect(),
        })
        .collect()
}

/// Each CPU, and the one that is looked at after it for somebody to preempt: they go round all CPUs, if these are at
/// most so many, else round those of each domain.
pub fn successors(domains: &[Domain], most: usize) -> Vec<(usize, usize)> {
    let all = domains.iter().map(|domain| domain.cpus.len()).sum::<usize>() <= most;
    let rings = domains.chunks(if all { domains.len().max(1) } else { 1 });
    let ring = |domains: &[Domain]| {
        let cpus: Vec<usize> = domains.iter().flat_map(|domain| domain.cpus.clone()).collect();
        let next: Vec<usize> = cpus.iter().copied().cycle().skip(1).take(cpus.len()).collect();
        cpus.into_iter().zip(next)
    };
    rings.flat_map(ring).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// So many nodes, of so many caches each, of so many cores each, of so many siblings.
    fn machine(nodes: usize, llcs: usize, cores: usize, smt: usize) -> Vec<CoreAt> {
        (0..nodes * llcs * cores)
            .map(|core| CoreAt {
                llc: core / cores,
                node: core / (llcs * cores),
                cpus: (core * smt..(core + 1) * smt).collect(),
            })
            .collect()
    }

    #[test]
    fn cpus_go_round_a_small_machine_or_a_domain() {
        let domains = domains(&machine(1, 2, 2, 1), 64);
        assert_eq!(successors(&domains, 4), [(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(successors(&domains, 3), [(0, 1), (1, 0), (2, 3), (3, 2)]);
        assert_eq!(successors(&domains[..1], 4), [(0, 1), (1, 0)]);
        assert_eq!(successors(&[], 4), []);
    }

    #[test]
    fn caches_are_domains_where_they_have_several_cores() {
        for (nodes, llcs, cores, smt, expected) in [
            (1, 1, 4, 1, 1),
            (1, 2, 2, 1, 2),
            (2, 1, 2, 2, 2),
            (2, 4, 8, 2, 8),
            // Each vCPU a socket: the cache says nothing.
            (1, 4, 1, 1, 1),
            (1, 16, 1, 1, 1),
            (2, 8, 1, 1, 2),
            (1, 1024, 1, 1, 1),
            (1, 2, 1, 2, 1),
            (1, 1, 1, 1, 1),
            // More caches than queues.
            (1, 128, 8, 1, 64),
            (4, 20, 2, 1, 40),
        ] {
            let domains = domains(&machine(nodes, llcs, cores, smt), 64);
            assert_eq!(domains.len(), expected, "{nodes} × {llcs} × {cores} × {smt}");
            let cpus: BTreeSet<usize> = domains.iter().flat_map(|domain| domain.cpus.clone()).collect();
            let all = domains.iter().map(|domain| domain.cpus.len()).sum::<usize>();
            assert_eq!((cpus.len(), all), (nodes * llcs * cores * smt, nodes * llcs * cores * smt));
        }
    }

    #[test]
    fn neighbours_share_and_not_strangers() {
        let domains = domains(&machine(2, 3, 2, 1), 3);
        assert_eq!(domains[0], Domain { node: 0, cpus: vec![0, 1, 2, 3] });
        assert_eq!(domains[2].cpus, [8, 9, 10, 11]);
        assert!(super::domains(&[], 64).is_empty());
    }
}
