//! `pack`: fill the first backend before the next one is touched.

use super::BackendView;
use crate::names::BackendName;

/// The backends to try, in the order they were configured.
#[must_use]
pub fn candidates(fleet: &[BackendView], size_bytes: u64) -> Vec<BackendName> {
    fleet.iter().filter(|backend| backend.takes(size_bytes)).map(|backend| backend.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::candidates;
    use crate::placement::BackendView;

    fn view(name: &str, writable: bool, max: Option<u64>, free: Option<u64>) -> BackendView {
        BackendView { name: name.parse().expect("valid"), writable, object_bytes_max: max, available_bytes: free }
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
        let names: Vec<String> = candidates(&fleet, 10).into_iter().map(String::from).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(candidates(&fleet[..3], 10).is_empty());
    }
}
