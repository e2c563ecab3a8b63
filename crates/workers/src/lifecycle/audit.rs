//! Counts and audit events of objects and uploads that lifecycle rules deleted or aborted.

use std::collections::BTreeSet;

use s3o_catalog::{DueObject, DueUpload};
use s3o_model::names::ObjectKey;

use super::position::BucketPosition;
use super::rules::ActiveRule;
use crate::{Event, Report};

fn event(name: &'static str, position: &BucketPosition, rule: &ActiveRule, key: &str) -> Event {
    let event = Event::new(name).of(Some(position.bucket.name.to_string()), key);
    event.with("rule", rule.rule.id.clone()).with("source", rule.source.as_str())
}

pub(super) fn report_deleted(
    position: &BucketPosition,
    rule: &ActiveRule,
    (objects, deleted): (&[DueObject], &[ObjectKey]),
    report: &mut Report,
) {
    let deleted: BTreeSet<&str> = deleted.iter().map(ObjectKey::as_str).collect();
    report.count("deleted", deleted.len() as u64);
    for object in objects.iter().filter(|object| deleted.contains(object.key.as_str())) {
        let event = event("lifecycle.deleted", position, rule, object.key.as_str());
        report.events.push(event.with("size_bytes", object.size_bytes));
    }
}

pub(super) fn report_aborted(
    position: &BucketPosition,
    rule: &ActiveRule,
    (upload, size_bytes): (&DueUpload, u64),
    report: &mut Report,
) {
    report.count("aborted", 1);
    let event = event("multipart.aborted", position, rule, upload.key.as_str());
    report.events.push(event.with("upload_id", upload.id.to_string()).with("size_bytes", size_bytes));
}
