//! What the rules in force would remove now, without removing anything.
//!
//! It walks the same pages and asks the same questions as the worker, and keeps numbers and a few samples
//! of each rule, however much there is.

use s3o_catalog::{DueObject, DueUpload, Lifecycles, RuledBucket};
use serde::Serialize;

use super::rules::{InForce, RuleSource, SharedRules, in_force};
use super::{PAGE, UPLOADS_PAGE, means, range, subject};
use crate::Error;

/// How many objects of a rule are named.
const SAMPLES_MAX: usize = 20;
/// How many rules are shown one by one.
const ITEMS_MAX: usize = 1000;

/// What the rules in force would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// Rule by rule. What two rules mean is told with both.
    pub items: Vec<RulePreview>,
    /// How many rules are not among them; they are in the total.
    pub left_out: u64,
    /// All together, everything once.
    pub total: PreviewTotal,
}

/// What all rules together would remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PreviewTotal {
    /// How many objects.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many uploads would be aborted.
    pub uploads: u64,
}

/// What one rule would remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RulePreview {
    /// The bucket.
    pub bucket: String,
    /// The prefix; empty for the whole bucket.
    pub prefix: String,
    /// Where the rule comes from.
    pub source: RuleSource,
    /// Its name there.
    pub rule: String,
    /// How many objects.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many uploads would be aborted.
    pub uploads: u64,
    /// The first of the objects.
    pub samples: Vec<Sample>,
}

/// An object that would be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Its key.
    pub key: String,
    /// How many bytes.
    pub size_bytes: u64,
    /// When it was written, in RFC 3339.
    pub last_modified: String,
}

/// A rule that is looked at.
struct Look<'a> {
    lifecycles: &'a dyn Lifecycles,
    bucket: &'a RuledBucket,
    standing: &'a InForce,
    /// Those that come first: what they mean as well is in the total already.
    earlier: &'a [InForce],
}

/// Tells what the rules in force would remove now.
pub async fn preview(lifecycles: &dyn Lifecycles, shared: &SharedRules) -> Result<Preview, Error> {
    let configured = shared.current();
    let mut preview = Preview::default();
    let mut after = String::new();
    while let Some(bucket) = lifecycles.ruled_bucket(&after, &configured.buckets()).await? {
        let rules = in_force(&bucket, &configured);
        for (number, standing) in rules.iter().enumerate() {
            let look = Look { lifecycles, bucket: &bucket, standing, earlier: &rules[..number] };
            preview.add(&look).await?;
        }
        bucket.name.as_str().clone_into(&mut after);
    }
    Ok(preview)
}

impl Preview {
    async fn add(&mut self, look: &Look<'_>) -> Result<(), Error> {
        let mut item = look.at_nothing();
        look.at_objects(&mut item, &mut self.total).await?;
        look.at_uploads(&mut item, &mut self.total).await?;
        if self.items.len() < ITEMS_MAX {
            self.items.push(item);
        } else {
            self.left_out += 1;
        }
        Ok(())
    }
}

impl Look<'_> {
    fn at_nothing(&self) -> RulePreview {
        RulePreview {
            bucket: self.bucket.name.to_string(),
            prefix: self.standing.rule.filter.prefix().to_owned(),
            source: self.standing.source,
            rule: self.standing.rule.id.clone(),
            count: 0,
            bytes: 0,
            uploads: 0,
            samples: Vec::new(),
        }
    }

    async fn at_objects(&self, item: &mut RulePreview, total: &mut PreviewTotal) -> Result<(), Error> {
        let rule = &self.standing.rule;
        let Some(threshold) = rule.expires() else { return Ok(()) };
        let mut from = None;
        loop {
            let page = self.lifecycles.due_objects(&range(self.bucket, rule, from, threshold), PAGE).await?;
            for object in page.objects.iter().filter(|object| means(rule, object)) {
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

    async fn at_uploads(&self, item: &mut RulePreview, total: &mut PreviewTotal) -> Result<(), Error> {
        let Some(threshold) = self.standing.rule.aborts() else { return Ok(()) };
        let range = range(self.bucket, &self.standing.rule, None, threshold);
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

/// Whether a rule that comes first removes this object.
fn removes(earlier: &InForce, object: &DueObject) -> bool {
    let due = earlier.rule.due_at(subject(object), object.last_modified);
    due.is_some_and(|due| due <= object.seen_at)
}

/// Whether a rule that comes first aborts this upload.
fn aborts(earlier: &InForce, upload: &DueUpload) -> bool {
    let starts = upload.key.as_str().starts_with(earlier.rule.filter.prefix());
    starts && earlier.rule.aborts().is_some_and(|threshold| threshold.is_due(upload.created_at, upload.seen_at))
}
