// SPDX-License-Identifier: GPL-2.0-only
//! What everybody is entitled to: time flows like water, down the tree of weights, to whoever can use it.
//!
//! Within a set of CPUs that all may use, a group's share goes to its members by weight; nobody gets more than it can
//! use, and what one leaves is the others'. With affinities the tightest set of CPUs is settled first: the one whose
//! members would get least, as nobody else can help them and they take nothing from elsewhere. (That is the
//! decomposition of weighted max-min fairness by bottlenecks; Radunović and Le Boudec, 2007.)
//!
//! Example: 4 CPUs; A may use all and wants 4, B of equal weight wants 1. Each is due 2, B can use 1, A gets 3. If A is
//! bound to CPUs 0 and 1 it gets 2, and one CPU idles.

/// A node of the tree; children stand behind their parents.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index of its parent; the root has none.
    pub parent: Option<usize>,
    /// Weight among its siblings.
    pub weight: f64,
    /// CPUs that it may use at most (a quota); infinite: no limit.
    pub limit: f64,
    /// CPUs that a leaf can use by itself, 0 to 1; ignored for others.
    pub wants: f64,
    /// CPUs that a leaf may run on; `None`: all.
    pub cpus: Option<Vec<u32>>,
}

impl Node {
    /// A group.
    pub fn group(parent: Option<usize>, weight: f64) -> Node {
        Node { parent, weight, limit: f64::INFINITY, wants: 0.0, cpus: None }
    }

    /// A task.
    pub fn task(parent: usize, weight: f64, wants: f64) -> Node {
        Node { parent: Some(parent), weight, limit: f64::INFINITY, wants, cpus: None }
    }
}

/// CPUs that each node gets, of `cpus` in all.
pub fn shares(nodes: &[Node], cpus: u32) -> Vec<f64> {
    let children: Vec<Vec<usize>> = (0..nodes.len())
        .map(|i| (0..nodes.len()).filter(|j| nodes[*j].parent == Some(i)).collect())
        .collect();
    let leaves: Vec<usize> = (0..nodes.len()).filter(|i| children[*i].is_empty()).collect();
    let mut given: Vec<Option<f64>> = vec![None; nodes.len()];
    let mut free: Vec<bool> = vec![true; cpus as usize];
    // Each round settles the tightest set of CPUs, and all leaves that can run nowhere else.
    loop {
        let open: Vec<usize> = leaves.iter().copied().filter(|leaf| given[*leaf].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let allowed = |leaf: usize| -> Vec<u32> {
            (0..cpus)
                .filter(|cpu| free[*cpu as usize])
                .filter(|cpu| nodes[leaf].cpus.as_ref().is_none_or(|list| list.contains(cpu)))
                .collect()
        };
        let sets: Vec<(usize, Vec<u32>)> = open.iter().map(|leaf| (*leaf, allowed(*leaf))).collect();
        let total = free.iter().filter(|free| **free).count() as f64;
        let ideal = pour(nodes, &children, &given, total, &|leaf| sets.iter().any(|(l, _)| *l == leaf));
        let tightest = tightest(&sets, &ideal);
        match tightest {
            None => {
                for leaf in open {
                    given[leaf] = Some(ideal[leaf]);
                }
            }
            Some(set) => {
                let inside: Vec<usize> = sets
                    .iter()
                    .filter(|(_, of)| of.iter().all(|cpu| set.contains(cpu)))
                    .map(|(leaf, _)| *leaf)
                    .collect();
                let local = pour(nodes, &children, &vec![None; nodes.len()], set.len() as f64, &|leaf| {
                    inside.contains(&leaf)
                });
                for leaf in inside {
                    given[leaf] = Some(local[leaf]);
                }
                for cpu in set {
                    free[cpu as usize] = false;
                }
            }
        }
    }
    let mut all: Vec<f64> = given.iter().map(|given| given.unwrap_or(0.0)).collect();
    for i in (0..nodes.len()).rev() {
        if let Some(parent) = nodes[i].parent.filter(|_| all[i] > 0.0) {
            all[parent] += all[i];
        }
    }
    all
}

/// The union of some leaves' sets whose members want more of it than it has, by the largest factor.
fn tightest(sets: &[(usize, Vec<u32>)], ideal: &[f64]) -> Option<Vec<u32>> {
    let mut distinct: Vec<Vec<u32>> = sets.iter().map(|(_, set)| set.clone()).collect();
    distinct.sort();
    distinct.dedup();
    let mut best: Option<(f64, Vec<u32>)> = None;
    // Unions of two at the most beside single ones: sets of real hosts are nested or apart.
    for i in 0..distinct.len() {
        for j in i..distinct.len() {
            let mut union = distinct[i].clone();
            union.extend(distinct[j].iter().filter(|cpu| !distinct[i].contains(cpu)));
            let asked: f64 = sets
                .iter()
                .filter(|(_, set)| set.iter().all(|cpu| union.contains(cpu)))
                .map(|(leaf, _)| ideal[*leaf])
                .sum();
            let factor = asked / (union.len() as f64).max(1e-9);
            if factor > 1.0 + 1e-9 && best.as_ref().is_none_or(|(most, _)| factor > *most) {
                best = Some((factor, union));
            }
        }
    }
    best.map(|(_, set)| set)
}

/// Pours `total` CPUs down the tree, over the leaves that are meant.
fn pour(
    nodes: &[Node],
    children: &[Vec<usize>],
    given: &[Option<f64>],
    total: f64,
    meant: &dyn Fn(usize) -> bool,
) -> Vec<f64> {
    let mut wants = vec![0.0; nodes.len()];
    for i in (0..nodes.len()).rev() {
        if children[i].is_empty() && given[i].is_none() && meant(i) {
            wants[i] = nodes[i].wants;
        }
        wants[i] = f64::min(wants[i], nodes[i].limit);
        if let Some(parent) = nodes[i].parent {
            wants[parent] += wants[i];
        }
    }
    let mut got = vec![0.0; nodes.len()];
    got[0] = total.min(wants[0]);
    for i in 0..nodes.len() {
        let mut open: Vec<usize> = children[i].iter().copied().filter(|child| wants[*child] > 0.0).collect();
        let mut left = got[i];
        while !open.is_empty() {
            let weights: f64 = open.iter().map(|child| nodes[*child].weight).sum();
            let full: Vec<usize> = open
                .iter()
                .copied()
                .filter(|child| wants[*child] <= left * nodes[*child].weight / weights + 1e-12)
                .collect();
            if full.is_empty() {
                for child in open {
                    got[child] = left * nodes[child].weight / weights;
                }
                break;
            }
            for child in &full {
                got[*child] = wants[*child];
                left -= wants[*child];
            }
            open.retain(|child| !full.contains(child));
        }
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn what_one_leaves_is_the_others() {
        let nodes = [
            Node::group(None, 1.0),
            Node::group(Some(0), 100.0),
            Node::group(Some(0), 100.0),
            Node::task(1, 1.0, 1.0),
            Node::task(1, 1.0, 1.0),
            Node::task(1, 1.0, 1.0),
            Node::task(1, 1.0, 1.0),
            Node::task(2, 1.0, 1.0),
        ];
        let got = shares(&nodes, 4);
        assert!(near(got[1], 3.0) && near(got[2], 1.0), "{got:?}");
        assert!(near(got[3], 0.75));
    }

    #[test]
    fn weights_count_where_nobody_is_full() {
        let mut nodes =
            vec![Node::group(None, 1.0), Node::group(Some(0), 100.0), Node::group(Some(0), 400.0)];
        nodes.extend((0..8).map(|i| Node::task(1 + i % 2, 1.0, 1.0)));
        let got = shares(&nodes, 4);
        assert!(near(got[1], 0.8) && near(got[2], 3.2), "{got:?}");
    }

    #[test]
    fn a_tight_set_is_settled_first() {
        let mut nodes = vec![Node::group(None, 1.0)];
        // Three bound to CPU 0, and three anywhere, on two CPUs.
        for i in 0..6 {
            let mut task = Node::task(0, 1.0, 1.0);
            task.cpus = (i < 3).then(|| vec![0]);
            nodes.push(task);
        }
        let got = shares(&nodes, 2);
        assert!(near(got[1], 1.0 / 3.0) && near(got[4], 1.0 / 3.0), "{got:?}");
        // With one anywhere, it has a CPU to itself.
        let got = shares(&nodes[..5], 2);
        assert!(near(got[1], 1.0 / 3.0) && near(got[4], 1.0), "{got:?}");
    }

    #[test]
    fn a_quota_is_a_limit() {
        let mut nodes =
            vec![Node::group(None, 1.0), Node::group(Some(0), 100.0), Node::group(Some(0), 100.0)];
        nodes[1].limit = 0.5;
        nodes.extend((0..4).map(|i| Node::task(1 + i % 2, 1.0, 1.0)));
        let got = shares(&nodes, 2);
        assert!(near(got[1], 0.5) && near(got[2], 1.5), "{got:?}");
    }
}
