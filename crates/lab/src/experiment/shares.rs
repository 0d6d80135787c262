// SPDX-License-Identifier: GPL-2.0-only
//! What VMs may claim when all want more than they get.

/// A VM's claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// In any unit that all have in common.
    pub weight: f64,
    /// CPUs that it can use at most.
    pub most: f64,
}

/// CPUs that each may claim: by weight, but no more than it can use; what one cannot use is shared among the others.
///
/// Example: of 4 CPUs, a VM of one vCPU and one of four, alike in weight, may claim 1 and 3.
pub fn shares(claims: &[Claim], cpus: f64) -> Vec<f64> {
    let mut share = vec![0.0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = cpus;
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|i| claims[*i].weight).sum();
        if weights == 0.0 {
            break;
        }
        let part = |i: usize| left * claims[i].weight / weights;
        let full: Vec<usize> = open.iter().copied().filter(|i| part(*i) >= claims[*i].most).collect();
        if full.is_empty() {
            open.iter().for_each(|i| share[*i] = part(*i));
            break;
        }
        for i in &full {
            share[*i] = claims[*i].most;
            left -= share[*i];
        }
        open.retain(|i| !full.contains(i));
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &[(f64, f64)]) -> Vec<f64> {
        let claims: Vec<Claim> =
            claims.iter().map(|(weight, most)| Claim { weight: *weight, most: *most }).collect();
        shares(&claims, 4.0)
    }

    #[test]
    fn shares_follow_weights_and_stop_at_what_can_be_used() {
        assert_eq!(of(&[(4.0, 4.0), (4.0, 4.0)]), [2.0, 2.0]);
        assert_eq!(of(&[(6.0, 4.0), (2.0, 2.0)]), [3.0, 1.0]);
        assert_eq!(of(&[(1.0, 1.0), (1.0, 4.0)]), [1.0, 3.0]);
        assert_eq!(of(&[(1.0, 4.0), (3.0, 4.0)]), [1.0, 3.0]);
        // Who can use little leaves the rest to the others, in two steps here.
        assert_eq!(of(&[(1.0, 0.5), (1.0, 1.25), (2.0, 4.0)]), [0.5, 1.0 + 1.0 / 6.0, 2.0 + 1.0 / 3.0]);
        assert_eq!(of(&[(1.0, 1.0), (1.0, 1.0)]), [1.0, 1.0]);
        assert_eq!(of(&[]), [0.0; 0]);
        assert_eq!(of(&[(0.0, 0.0)]), [0.0], "who claims nothing");
    }
}
