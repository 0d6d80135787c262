// SPDX-License-Identifier: GPL-2.0-only
//! Lists of CPUs as the kernel writes them: `0-3,8`.

use anyhow::{Result, bail};
use scx_utils::read_cpulist;
use std::collections::BTreeSet;

/// CPUs by number.
pub type Cpus = BTreeSet<usize>;

/// Larger than any CPU's number.
const LIMIT: usize = 8192;

/// Reads a list; the empty text is the empty list.
///
/// # Errors
/// It is not a list of numbers and ranges below 8192.
pub fn parse(text: &str) -> Result<Cpus> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Cpus::new());
    }
    let numbers = text.split([',', '-']).map(|word| word.trim().parse::<usize>());
    if numbers.into_iter().any(|n| n.map_or(true, |n| n >= LIMIT)) {
        bail!("{text:?} is not a list of CPUs: write numbers and ranges, as in 0-3,8");
    }
    if let Some(range) = text.split(',').find(|range| is_backward(range)) {
        bail!("{text:?} is not a list of CPUs: {range} ends before it begins");
    }
    Ok(read_cpulist(text)?.into_iter().collect())
}

fn is_backward(range: &str) -> bool {
    let number = |word: &str| word.trim().parse::<usize>().ok();
    range.split_once('-').is_some_and(|(first, last)| number(first) > number(last))
}

/// Writes a list.
pub fn format(cpus: &Cpus) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let word = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_as_they_were() {
        for text in ["", "0", "0-3", "0,2", "0-3,8,10-11"] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
        assert_eq!(format(&parse(" 3,0-1\n").unwrap()), "0-1,3");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["x", "0,5-2", "0-", "-1", "0-99999999999", "1,,2", "0-3-5x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
