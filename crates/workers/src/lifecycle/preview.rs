//! Preview of what the rules in force would delete now; it changes nothing.
//!
//! It reads the same pages with the same queries as the worker, and keeps only counts and a few samples
//! of each rule, so that its size is bounded.

use s3o_catalog::{Catalog, DueObject, DueUpload, RuledBucket};
use serde::Serialize;

use super::rules::{ActiveRule, RuleSource, SharedRules, active_rules};
use super::{PAGE, UPLOADS_PAGE, matches, range, subject};
use crate::Error;

/// Number of sample objects per rule.
const SAMPLES_MAX: usize = 20;
/// Number of rules that are listed individually.
const ITEMS_MAX: usize = 1000;

/// What the rules in force would delete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// By rule. An object that two rules match counts for both.
    pub items: Vec<RulePreview>,
    /// Number of rules that `items` leaves out; the total includes them.
    pub left_out: u64,
    /// Sum over all rules; every object counts once.
    pub total: PreviewTotal,
}

/// What all rules together would delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PreviewTotal {
    /// Number of objects.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Number of uploads that would be aborted.
    pub uploads: u64,
}

/// What one rule would delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RulePreview {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of the rule; empty for the whole bucket.
    pub prefix: String,
    /// Where the rule is defined.
    pub source: RuleSource,
    /// ID of the rule, or its path in the configuration.
    pub rule: String,
    /// Number of objects.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Number of uploads that would be aborted.
    pub uploads: u64,
    /// The first matching objects, at most 20.
    pub samples: Vec<Sample>,
}

/// An object that would be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Object key.
    pub key: String,
    /// Length of the body.
    pub size_bytes: u64,
    /// Last-modified time, in RFC 3339.
    pub last_modified: String,
}

/// One rule with what its preview needs.
struct PreviewedRule<'a> {
    lifecycles: &'a Catalog,
    bucket: &'a RuledBucket,
    active: &'a ActiveRule,
    /// Rules applied before this one; objects that they match are already in the total.
    earlier: &'a [ActiveRule],
}

/// Computes what the rules in force would delete now.
pub async fn preview(lifecycles: &Catalog, shared: &SharedRules) -> Result<Preview, Error> {
    let configured = shared.current();
    let mut preview = Preview::default();
    let mut after = String::new();
    while let Some(bucket) = lifecycles.ruled_bucket(&after, &configured.buckets()).await? {
        let rules = active_rules(&bucket, &configured);
        for (number, active) in rules.iter().enumerate() {
            let rule = PreviewedRule { lifecycles, bucket: &bucket, active, earlier: &rules[..number] };
            preview.add(&rule).await?;
        }
        bucket.name.as_str().clone_into(&mut after);
    }
    Ok(preview)
}

impl Preview {
    async fn add(&mut self, rule: &PreviewedRule<'_>) -> Result<(), Error> {
        let mut item = rule.empty_item();
        rule.count_objects(&mut item, &mut self.total).await?;
        rule.count_uploads(&mut item, &mut self.total).await?;
        if self.items.len() < ITEMS_MAX {
            self.items.push(item);
        } else {
            self.left_out += 1;
        }
        Ok(())
    }
}

impl PreviewedRule<'_> {
    fn empty_item(&self) -> RulePreview {
        RulePreview {
            bucket: self.bucket.name.to_string(),
            prefix: self.active.rule.filter.prefix().to_owned(),
            source: self.active.source,
            rule: self.active.rule.id.clone(),
            count: 0,
            bytes: 0,
            uploads: 0,
            samples: Vec::new(),
        }
    }

    async fn count_objects(&self, item: &mut RulePreview, total: &mut PreviewTotal) -> Result<(), Error> {
        let rule = &self.active.rule;
        let Some(threshold) = rule.expires() else { return Ok(()) };
        let mut from = None;
        loop {
            let page = self.lifecycles.due_objects(&range(self.bucket, rule, from, threshold), PAGE).await?;
            for object in page.objects.iter().filter(|object| matches(rule, object)) {
                item.add(object);
                if !self.earlier.iter().any(|earlier| removes(earlier, object)) {
                    total.count += 1;
                    total.bytes += object.size_bytes;
                }
            }
            from = match page.next {
                Some(next) => Some(next),
                None => return Ok(()),
            };
        }
    }

    async fn count_uploads(&self, item: &mut RulePreview, total: &mut PreviewTotal) -> Result<(), Error> {
        let Some(threshold) = self.active.rule.aborts() else { return Ok(()) };
        let range = range(self.bucket, &self.active.rule, None, threshold);
        let mut behind = None;
        loop {
            let due = self.lifecycles.due_uploads(&range, behind.as_ref(), UPLOADS_PAGE).await?;
            let fresh = due.iter().filter(|upload| !self.earlier.iter().any(|earlier| aborts(earlier, upload))).count();
            item.uploads += due.len() as u64;
            total.uploads += fresh as u64;
            let full = due.len() >= UPLOADS_PAGE;
            behind = due.into_iter().next_back();
            if !full {
                return Ok(());
            }
        }
    }
}

impl RulePreview {
    fn add(&mut self, object: &DueObject) {
        self.count += 1;
        self.bytes += object.size_bytes;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(Sample {
                key: object.key.to_string(),
                size_bytes: object.size_bytes,
                last_modified: object.last_modified.to_string(),
            });
        }
    }
}

/// Whether an earlier rule deletes this object.
fn removes(earlier: &ActiveRule, object: &DueObject) -> bool {
    let due = earlier.rule.due_at(subject(object), object.last_modified);
    due.is_some_and(|due| due <= object.seen_at)
}

/// Whether an earlier rule aborts this upload.
fn aborts(earlier: &ActiveRule, upload: &DueUpload) -> bool {
    let starts = upload.key.as_str().starts_with(earlier.rule.filter.prefix());
    starts && earlier.rule.aborts().is_some_and(|threshold| threshold.is_due(upload.created_at, upload.seen_at))
}
