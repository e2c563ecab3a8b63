//! `spread`: of two backends drawn at random, the one with the smaller share of used capacity is tried first. Writers
//! with equally old counters then do not all choose the same backend.

use std::cmp::Ordering;

use super::BackendView;

/// Draws two backends and takes the emptier one, until none is left.
pub(super) fn order(mut taking: Vec<&BackendView>, mut draw: impl FnMut(usize) -> usize) -> Vec<&BackendView> {
    let largest = taking.iter().filter_map(|backend| backend.limit_bytes).max().unwrap_or(u64::MAX);
    let mut ordered = Vec::with_capacity(taking.len());
    while taking.len() > 1 {
        let first = draw(taking.len());
        // The second one is drawn from the others.
        let second = (first + 1 + draw(taking.len() - 1)) % taking.len();
        let emptier = match compare(taking[first], taking[second], largest) {
            Ordering::Less | Ordering::Equal => first,
            Ordering::Greater => second,
        };
        ordered.push(taking.swap_remove(emptier));
    }
    ordered.extend(taking);
    ordered
}

/// Compares used shares. A backend without a limit counts as large as the largest.
fn compare(one: &BackendView, other: &BackendView, largest: u64) -> Ordering {
    let limit = |backend: &BackendView| u128::from(backend.limit_bytes.unwrap_or(largest).max(1));
    // Cross-multiplied, so that shares are compared exactly.
    let one_share = u128::from(one.filled_bytes) * limit(other);
    one_share.cmp(&(u128::from(other.filled_bytes) * limit(one)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::super::{BackendView, Strategy, candidates};
    use crate::entropy::{Entropy as _, SeededEntropy};

    fn first(fleet: &[BackendView], seed: u64) -> String {
        let entropy = SeededEntropy::new(seed);
        let draw = |below: usize| usize::try_from(entropy.next_u64() % below as u64).expect("small");
        candidates(Strategy::Spread, fleet, 1, draw)[0].to_string()
    }

    fn filled(name: &str, filled_bytes: u64, limit_bytes: Option<u64>) -> BackendView {
        BackendView { filled_bytes, limit_bytes, ..view(name) }
    }

    #[test]
    fn of_two_backends_the_emptier_share_is_first() {
        let fleet = [filled("half", 50, Some(100)), filled("third", 300, Some(900))];
        assert!((0..50).all(|seed| first(&fleet, seed) == "third"));
    }

    #[test]
    fn a_backend_without_a_limit_counts_as_the_largest() {
        let fleet = [filled("small", 50, Some(100)), filled("large", 300, Some(1000)), filled("free", 290, None)];
        assert!((0..50).all(|seed| first(&fleet, seed) != "small"), "every pair has an emptier one");
        assert!((0..50).all(|seed| first(&fleet[1..], seed) == "free"));
    }

    #[test]
    fn every_backend_is_tried_once() {
        let fleet: Vec<_> = ["a", "b", "c", "d"].map(|name| filled(name, 1, Some(10))).to_vec();
        let mut firsts: Vec<_> = (0..200).map(|seed| first(&fleet, seed)).collect();
        firsts.sort();
        firsts.dedup();
        assert_eq!(firsts, ["a", "b", "c", "d"], "equal shares are drawn at random");
        let mut all = candidates(Strategy::Spread, &fleet, 1, |_| 0);
        all.sort();
        assert_eq!(all.len(), 4);
        all.dedup();
        assert_eq!(all.len(), 4);
    }
}
