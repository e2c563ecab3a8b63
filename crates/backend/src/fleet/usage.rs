//! Usage limits of the backends in the fleet.

use std::sync::Arc;

use s3o_model::names::BackendName;
use s3o_model::usage::{ReachedLimit, UsagePurpose};

use super::{Fleet, Member};
use crate::usage::BackendUsage;

impl Member {
    pub(super) fn reached_limit(&self, purpose: UsagePurpose) -> Option<ReachedLimit> {
        self.usage.as_ref().and_then(|usage| usage.reached(purpose))
    }
}

impl Fleet {
    /// Adds the usage of the backends, by their names.
    #[must_use]
    pub fn with_usage(mut self, usages: impl IntoIterator<Item = Arc<BackendUsage>>) -> Self {
        for usage in usages {
            if let Some(member) = self.members.iter_mut().find(|member| member.backend.name() == usage.backend()) {
                member.usage = Some(usage);
            }
        }
        self
    }

    /// Usage of a backend; `None` if it is not counted or not configured.
    #[must_use]
    pub fn usage(&self, name: &BackendName) -> Option<&Arc<BackendUsage>> {
        self.member(name).and_then(|member| member.usage.as_ref())
    }

    /// Usage of every counted backend, in order.
    pub fn usages(&self) -> impl Iterator<Item = &Arc<BackendUsage>> {
        self.members.iter().filter_map(|member| member.usage.as_ref())
    }

    /// The usage limit that forbids calls of this purpose; `None` if they are permitted.
    #[must_use]
    pub fn reached_limit(&self, name: &BackendName, purpose: UsagePurpose) -> Option<ReachedLimit> {
        self.member(name).and_then(|member| member.reached_limit(purpose))
    }

    /// Whether background work may use a backend: its usage is below the threshold of every limit.
    #[must_use]
    pub fn permits_background(&self, name: &BackendName) -> bool {
        self.usage(name).is_none_or(|usage| usage.permits_background())
    }
}
