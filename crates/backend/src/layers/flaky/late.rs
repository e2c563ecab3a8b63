//! Writes whose answer is lost and that take effect all the same, later, whoever is gone by then.

use std::time::Duration;

use bytes::Bytes;
use s3o_model::clock::Timestamp;

use super::Flaky;
use super::injury::lost;
use crate::{Error, UploadedPart, body};

/// What is still to happen.
pub(super) enum LateCall {
    Put { key: String, bytes: Bytes },
    Finish { key: String, upload: String, parts: Vec<UploadedPart> },
}

/// A write on its way.
pub(super) struct LateWrite {
    due: Option<Timestamp>,
    call: LateCall,
}

impl Flaky {
    /// Keeps a write for later; the error is what its caller is told now.
    pub(super) fn write_later(&self, delay: Duration, call: LateCall) -> Error {
        let due = self.clock.as_ref().map(|clock| clock.now().after(delay));
        self.late.lock().push(LateWrite { due, call });
        lost()
    }

    /// Lets every write land that is on its way; says how many.
    pub async fn land_all(&self) -> usize {
        self.land(|_| true).await
    }

    pub(super) async fn land_due(&self) {
        if let Some(clock) = &self.clock {
            let now = clock.now();
            self.land(|write| write.due.is_some_and(|due| due <= now)).await;
        }
    }

    async fn land(&self, is_due: impl Fn(&LateWrite) -> bool) -> usize {
        let due: Vec<LateWrite> = {
            let mut late = self.late.lock();
            let (due, waiting) = late.drain(..).partition(is_due);
            *late = waiting;
            due
        };
        let mut landed = 0;
        for LateWrite { call, .. } in due {
            let outcome = match call {
                LateCall::Put { key, bytes } => {
                    self.inner.put(&key, bytes.len() as u64, body::whole(bytes)).await.map(drop)
                }
                // Its upload may have been given up meanwhile; then nothing lands.
                LateCall::Finish { key, upload, parts } => {
                    self.inner.finish_upload(&key, &upload, &parts).await.map(drop)
                }
            };
            landed += usize::from(outcome.is_ok());
        }
        landed
    }
}
