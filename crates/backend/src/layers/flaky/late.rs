//! Writes whose response is lost and that take effect later, even if their caller has ended.

use std::time::Duration;

use bytes::Bytes;
use s3o_model::clock::Timestamp;

use super::Flaky;
use super::effects::response_lost;
use crate::{Error, UploadedPart, body};

/// The call that takes effect later.
pub(super) enum LateCall {
    Put { key: String, bytes: Bytes },
    Finish { key: String, upload: String, parts: Vec<UploadedPart> },
}

/// A write that has not taken effect yet.
pub(super) struct LateWrite {
    due: Option<Timestamp>,
    call: LateCall,
}

impl Flaky {
    /// Queues a write and returns the error for its caller.
    pub(super) fn write_later(&self, delay: Duration, call: LateCall) -> Error {
        let due = self.clock.as_ref().map(|clock| clock.now().after(delay));
        self.late.lock().push(LateWrite { due, call });
        response_lost()
    }

    /// Lets every late write take effect; returns the number of those that succeeded.
    pub async fn store_late_writes(&self) -> usize {
        self.store_late(|_| true).await
    }

    pub(super) async fn store_due_writes(&self) {
        if let Some(clock) = &self.clock {
            let now = clock.now();
            self.store_late(|write| write.due.is_some_and(|due| due <= now)).await;
        }
    }

    async fn store_late(&self, is_due: impl Fn(&LateWrite) -> bool) -> usize {
        let due: Vec<LateWrite> = {
            let mut late = self.late.lock();
            let (due, waiting) = late.drain(..).partition(is_due);
            *late = waiting;
            due
        };
        let mut stored = 0;
        for LateWrite { call, .. } in due {
            let outcome = match call {
                LateCall::Put { key, bytes } => {
                    self.inner.put(&key, bytes.len() as u64, body::whole(bytes)).await.map(drop)
                }
                // The upload may have been aborted meanwhile; then nothing is stored.
                LateCall::Finish { key, upload, parts } => {
                    self.inner.finish_upload(&key, &upload, &parts).await.map(drop)
                }
            };
            stored += usize::from(outcome.is_ok());
        }
        stored
    }
}
