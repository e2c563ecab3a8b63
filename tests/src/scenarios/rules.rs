//! Deletion by a lifecycle rule.

use s3o_engine::Error;
use s3o_model::clock::Timestamp;
use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, Status};
use s3o_workers::Report;

use super::Work;
use crate::harness::{Harness, bucket};

/// Sets a rule whose date has passed, and runs the lifecycle worker until it reports no more work.
pub(super) fn expire_by_rule(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let rule = Rule {
            id: "all".to_owned(),
            status: Status::Enabled,
            filter: Filter { prefix: Some("a".to_owned()), ..Filter::default() },
            form: Form::Plain,
            expiration: Some(Expiration::Date(Timestamp::from_millis(0))),
            abort_after_days: None,
        };
        harness.engine.set_lifecycle(&bucket(), Some(&[rule])).await?;
        loop {
            let mut report = Report::default();
            let ticked = harness.process.worker("lifecycle").tick(&mut report).await;
            ticked.map_err(|error| Error::Away(error.to_string()))?;
            if !report.more {
                return Ok(());
            }
        }
    })
}
