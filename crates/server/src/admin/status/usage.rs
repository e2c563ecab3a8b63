//! Usage of a backend in the JSON of the status.

use s3o_backend::Fleet;
use s3o_model::names::BackendName;
use s3o_model::usage::{UsageKind, UsagePurpose};
use s3o_workers::BackendUsageView;
use serde::Serialize;

/// What all instances sent to a backend and received from it this month, as far as the answering instance knows.
#[derive(Debug, Serialize)]
pub struct UsageStatus {
    /// In UTC, such as `2026-11`.
    month: String,
    api_requests: UsedOfLimit,
    egress_bytes: UsedOfLimit,
    ingress_bytes: UsedOfLimit,
    /// Setting of the limit for which the answering instance does not read from the backend.
    reads_stopped_by: Option<&'static str>,
    /// The same for writes.
    writes_stopped_by: Option<&'static str>,
    /// True if background work does not use the backend, because a limit is near.
    background_stopped: bool,
}

#[derive(Debug, Serialize)]
struct UsedOfLimit {
    used: u64,
    /// Null without a limit.
    limit: Option<u64>,
}

impl UsageStatus {
    /// `None` for a backend that is not counted.
    pub fn of(name: &BackendName, views: &[BackendUsageView], fleet: &Fleet) -> Option<Self> {
        let view = views.iter().find(|view| view.backend == *name)?;
        let number = |kind: UsageKind| UsedOfLimit { used: view.totals.of(kind), limit: view.limits.of(kind) };
        let stopped_by = |purpose| fleet.reached_limit(name, purpose).map(|limit| limit.kind.setting());
        Some(Self {
            month: view.month.to_string(),
            api_requests: number(UsageKind::Requests),
            egress_bytes: number(UsageKind::Egress),
            ingress_bytes: number(UsageKind::Ingress),
            reads_stopped_by: stopped_by(UsagePurpose::Read),
            writes_stopped_by: stopped_by(UsagePurpose::Write),
            background_stopped: !fleet.permits_background(name),
        })
    }
}
