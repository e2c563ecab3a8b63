//! Two passes of reconcile over a store whose objects change in between.

use std::time::Duration;

use s3o_engine::Error;
use s3o_workers::{ReconcileSettings, Report};

use super::{Work, put_new};
use crate::environment::ON_REQUEST;
use crate::harness::Harness;

/// Passes are due every hour; two of them confirm a finding.
const BETWEEN: Duration = Duration::from_hours(1);

/// Overwrites the object between two passes. A pass never takes its bytes for those of no row.
pub(super) fn overwrite_between_two_passes(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        harness.process.set_reconcile(ReconcileSettings { enabled: true, interval: BETWEEN, ..ON_REQUEST });
        let first = pass(harness).await;
        put_new(harness).await?;
        first?;
        pass(harness).await
    })
}

async fn pass(harness: &Harness) -> Result<(), Error> {
    harness.clock.advance(BETWEEN);
    loop {
        let mut report = Report::default();
        let ticked = harness.process.worker("reconciler").tick(&mut report).await;
        ticked.map_err(|error| Error::Away(error.to_string()))?;
        if !report.more {
            return Ok(());
        }
    }
}
