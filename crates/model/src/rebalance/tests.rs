//! Tests of passes: plans of whole fleets, and the rules for single moves.

use std::collections::BTreeMap;

use super::{BackendLoad, MovableCopy, RebalancePass, RebalanceRules};
use crate::clock::Timestamp;
use crate::ids::ContentId;
use crate::names::BackendName;
use crate::placement::tests::view;
use crate::placement::{BackendView, Strategy};

fn load(name: &str, used_bytes: u64, limit_bytes: Option<u64>) -> BackendLoad {
    let view = BackendView { filled_bytes: used_bytes, limit_bytes, ..view(name) };
    BackendLoad { view, used_bytes, is_movable: true }
}

fn pass(strategy: Strategy, threshold: f64, loads: &[BackendLoad]) -> RebalancePass {
    RebalancePass::new(RebalanceRules { strategy, threshold }, loads.to_vec())
}

fn name(text: &str) -> BackendName {
    text.parse().expect("valid")
}

fn content(number: i64) -> ContentId {
    ContentId::last_of(Timestamp::from_millis(number))
}

fn place(pass: &mut RebalancePass, source: &str, size_bytes: u64, holders: &[&str]) -> Option<String> {
    let holders: Vec<BackendName> = holders.iter().map(|holder| name(holder)).collect();
    let copy = MovableCopy { content: content(0), size_bytes, holders: holders.iter().collect() };
    pass.place(&name(source), &copy).map(String::from)
}

/// The used bytes after a pass over copies of one size, each the only one of its content.
fn used_after(strategy: Strategy, threshold: f64, loads: &[BackendLoad], size_bytes: u64) -> Vec<u64> {
    let mut pass = pass(strategy, threshold, loads);
    let mut left: BTreeMap<BackendName, u64> =
        loads.iter().map(|load| (load.view.name.clone(), load.used_bytes / size_bytes)).collect();
    let mut number = 0;
    while let Some(source) = pass.next_source().cloned() {
        let copies = left.get_mut(&source).expect("a backend of the pass");
        if *copies == 0 {
            pass.exhaust(&source);
            continue;
        }
        *copies -= 1;
        number += 1;
        let copy = MovableCopy { content: content(number), size_bytes, holders: vec![&source] };
        pass.place(&source, &copy);
    }
    pass.members.iter().map(|member| member.load.used_bytes).collect()
}

#[test]
fn spread_ends_with_shares_within_the_threshold() {
    let loads = [load("a", 900, Some(1000)), load("b", 200, Some(2000)), load("c", 0, Some(500))];
    let used = used_after(Strategy::Spread, 0.1, &loads, 10);
    assert_eq!(used.iter().sum::<u64>(), 1100);
    // In thousandths.
    let shares = [used[0], used[1] / 2, used[2] * 2];
    let (least, most) = (shares.iter().min().expect("three"), shares.iter().max().expect("three"));
    assert!(most - least <= 100, "{shares:?}");
}

#[test]
fn spread_of_balanced_backends_moves_nothing() {
    let loads = [load("a", 500, Some(1000)), load("b", 400, Some(1000))];
    assert!(pass(Strategy::Spread, 0.1, &loads).next_source().is_none());
    assert!(pass(Strategy::Spread, 0.09, &loads).next_source().is_some());
    assert!(pass(Strategy::Spread, 0.0, &loads[..1]).next_source().is_none());
    assert!(pass(Strategy::Spread, 0.0, &[]).next_source().is_none());
}

#[test]
fn target_never_ends_above_the_source() {
    let loads = [load("a", 900, Some(1000)), load("b", 100, Some(1000))];
    assert_eq!(place(&mut pass(Strategy::Spread, 0.1, &loads), "a", 401, &["a"]), None);
    assert_eq!(place(&mut pass(Strategy::Spread, 0.1, &loads), "a", 400, &["a"]), Some("b".into()));
    assert_eq!(place(&mut pass(Strategy::Spread, 0.1, &loads), "a", 0, &["a"]), None, "an empty copy changes nothing");
}

/// Moved bytes stay on their old backend for a grace; counting them would repeat the moves.
#[test]
fn bytes_that_wait_for_deletion_do_not_count_as_used() {
    let mut loads = [load("a", 500, Some(1000)), load("b", 500, Some(1000))];
    loads[0].view.filled_bytes = 900;
    assert!(pass(Strategy::Spread, 0.1, &loads).next_source().is_none());
}

#[test]
fn backend_with_a_copy_is_no_target() {
    let loads = [load("a", 900, Some(1000)), load("b", 0, Some(1000)), load("c", 100, Some(1000))];
    assert_eq!(place(&mut pass(Strategy::Spread, 0.1, &loads), "a", 10, &["a", "b"]), Some("c".into()));
    assert_eq!(place(&mut pass(Strategy::Spread, 0.1, &loads), "a", 10, &["a", "b", "c"]), None);
    assert_eq!(place(&mut pass(Strategy::Pack, 0.1, &loads), "c", 10, &["a", "c"]), Some("b".into()));
}

#[test]
fn content_is_moved_once_in_a_pass() {
    let loads = [load("a", 900, Some(1000)), load("b", 800, Some(1000)), load("c", 0, None), load("d", 0, None)];
    let mut pass = pass(Strategy::Spread, 0.1, &loads);
    assert_eq!(place(&mut pass, "a", 10, &["a", "b"]), Some("c".into()));
    assert_eq!(place(&mut pass, "b", 10, &["a", "b"]), None);
}

#[test]
fn backend_that_takes_gives_nothing_in_the_same_pass() {
    let loads = [load("a", 0, Some(100)), load("b", 500, Some(1000)), load("c", 500, Some(1000))];
    let mut pass = pass(Strategy::Pack, 0.1, &loads);
    assert_eq!(pass.next_source(), Some(&name("c")));
    assert_eq!(place(&mut pass, "c", 200, &["c"]), Some("b".into()), "it does not fit on the first");
    pass.exhaust(&name("c"));
    assert_eq!(pass.next_source(), None);
}

#[test]
fn backends_that_are_not_usable_neither_give_nor_take() {
    let usable = load("a", 900, Some(1000));
    let disable: [fn(&mut BackendLoad); 4] = [
        |load| load.is_movable = false,
        |load| load.view.writable = false,
        |load| load.view.circuit_open = true,
        |load| load.view.reachable = false,
    ];
    for disable in disable {
        for position in 0..2 {
            let mut loads = [usable.clone(), load("b", 0, Some(1000))];
            disable(&mut loads[position]);
            assert!(pass(Strategy::Spread, 0.1, &loads).next_source().is_none());
            loads.reverse();
            assert!(pass(Strategy::Pack, 0.1, &loads).next_source().is_none());
        }
    }
}

#[test]
fn refreshed_counters_replace_planned_ones() {
    let loads = [load("a", 900, Some(1000)), load("b", 0, Some(1000))];
    let mut pass = pass(Strategy::Spread, 0.1, &loads);
    assert_eq!(place(&mut pass, "a", 100, &["a"]), Some("b".into()));
    pass.refresh(vec![load("a", 500, Some(1000)), load("b", 500, Some(1000))]);
    assert!(pass.next_source().is_none());
    pass.refresh(vec![load("a", 900, Some(1000))]);
    assert!(pass.next_source().is_none(), "the other backend is gone");
}

#[test]
fn pack_fills_the_first_backends_from_the_last() {
    let loads = [load("a", 100, Some(200)), load("b", 0, Some(150)), load("c", 400, Some(1000))];
    assert_eq!(used_after(Strategy::Pack, 0.1, &loads, 10), [200, 150, 150]);
    let free = [load("a", 0, None), load("b", 70, Some(100)), load("c", 30, None)];
    assert_eq!(used_after(Strategy::Pack, 0.1, &free, 10), [100, 0, 0]);
    assert_eq!(used_after(Strategy::Pack, 0.1, &[load("a", 10, None)], 10), [10]);
}

#[test]
fn backend_without_a_limit_counts_as_the_largest() {
    let loads = [load("small", 80, Some(100)), load("large", 100, Some(1000)), load("free", 700, None)];
    let mut plan = pass(Strategy::Spread, 0.1, &loads);
    assert_eq!(plan.next_source(), Some(&name("small")));
    assert_eq!(place(&mut plan, "small", 10, &["small"]), Some("large".into()));
    // Without any limit, the shares of all bytes are compared.
    let free = [load("a", 900, None), load("b", 0, None), load("c", 0, None)];
    assert_eq!(used_after(Strategy::Spread, 0.01, &free, 1).iter().max(), Some(&305));
}
