//! What is said of what rules removed.

use std::collections::BTreeSet;

use s3o_catalog::{DueObject, DueUpload};
use s3o_model::names::ObjectKey;

use super::place::Place;
use super::rules::InForce;
use crate::{Event, Report};

fn event(name: &'static str, place: &Place, standing: &InForce, key: &str) -> Event {
    let event = Event::new(name).of(Some(place.bucket.name.to_string()), key);
    event.with("rule", standing.rule.id.clone()).with("source", standing.source.as_str())
}

pub(super) fn tell_deleted(
    place: &Place,
    standing: &InForce,
    (objects, gone): (&[DueObject], &[ObjectKey]),
    report: &mut Report,
) {
    let gone: BTreeSet<&str> = gone.iter().map(ObjectKey::as_str).collect();
    report.count("deleted", gone.len() as u64);
    for object in objects.iter().filter(|object| gone.contains(object.key.as_str())) {
        let event = event("lifecycle.deleted", place, standing, object.key.as_str());
        report.events.push(event.with("size_bytes", object.size_bytes));
    }
}

pub(super) fn tell_aborted(
    place: &Place,
    standing: &InForce,
    (upload, size_bytes): (&DueUpload, u64),
    report: &mut Report,
) {
    report.count("aborted", 1);
    let event = event("multipart.aborted", place, standing, upload.key.as_str());
    report.events.push(event.with("upload_id", upload.id.to_string()).with("size_bytes", size_bytes));
}
