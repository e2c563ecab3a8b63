//! `pack`: fill the first backend before the next one is touched.

use super::BackendView;
use crate::names::BackendName;

/// The backends to try, in the order they were configured, those that are away last.
#[must_use]
pub fn candidates(fleet: &[BackendView], size_bytes: u64) -> Vec<BackendName> {
    let taking = fleet.iter().filter(|backend| backend.takes(size_bytes));
    let (reachable, away): (Vec<_>, Vec<_>) = taking.partition(|backend| backend.reachable);
    reachable.into_iter().chain(away).map(|backend| backend.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::candidates;
    use crate::placement::BackendView;

    fn view(name: &str, writable: bool, max: Option<u64>, free: Option<u64>) -> BackendView {
        BackendView {
            name: name.parse().expect("valid"),
            writable,
            reachable: true,
            full_from_bytes: None,
            object_bytes_max: max,
            available_bytes: free,
        }
    }

    fn names(fleet: &[BackendView], size_bytes: u64) -> Vec<String> {
        candidates(fleet, size_bytes).into_iter().map(String::from).collect()
    }

    #[test]
    fn the_first_with_room_comes_first() {
        let fleet = [
            view("full", true, None, Some(5)),
            view("frozen", false, None, None),
            view("small", true, Some(9), None),
            view("first", true, None, Some(10)),
            view("second", true, None, None),
        ];
        assert_eq!(names(&fleet, 10), ["first", "second"]);
        assert!(candidates(&fleet[..3], 10).is_empty());
    }

    #[test]
    fn full_backend_takes_smaller_bodies_only() {
        let mut fleet = [view("first", true, None, None), view("second", true, None, None)];
        fleet[0].full_from_bytes = Some(10);
        assert_eq!(names(&fleet, 10), ["second"]);
        assert_eq!(names(&fleet, 9), ["first", "second"]);
    }

    #[test]
    fn unreachable_backend_is_tried_last() {
        let mut fleet = [view("away", true, None, None), view("here", true, None, None)];
        fleet[0].reachable = false;
        assert_eq!(names(&fleet, 1), ["here", "away"]);
        assert_eq!(names(&fleet[..1], 1), ["away"]);
    }
}
