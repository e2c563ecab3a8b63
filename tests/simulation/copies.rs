//! Copies of objects. A copy reads one key and writes another, so that its answer is compared with both.

use s3o_engine::{Copied, CopyObject, CopySource, Error};
use s3o_model::conditions::ReadConditions;
use s3o_tests::harness::{bucket, copy as copy_request, key as parse_key};

use crate::answers::SentWrite;
use crate::client::{ClientAnswerRef, SimulatedClient};
use crate::ledger::{HUGE, SMALL};
use crate::model::{ModelCondition, ModelWrite};

impl SimulatedClient {
    pub async fn copy(&self) {
        let family: &[&'static str] = if self.context.has_big && self.one_of(8) { &HUGE } else { &SMALL };
        let (source, target) = (self.pick(family), self.pick(family));
        if source == target {
            return;
        }
        let (condition, expiry) = (self.condition(target), self.expiry());
        let written = self.write_condition(&condition);
        let copy = CopyObject { condition: written, expiry, ..copy_request(source, target) };
        self.record(format_args!("copy {source} to {target} {condition:?} {expiry:?}"));
        let (read, sent) = {
            let mut ledger = self.context.ledger();
            let write = ModelWrite { expiry, ..ModelWrite::of(None, condition.clone()) };
            let write = ledger.copy(source, target, write);
            (ledger.read(source), SentWrite { write, condition_read: ledger.read(target), condition })
        };
        let answer = self.send(self.engine.copy_object(copy)).await;
        self.record(format_args!("copy {source} to {target}: {answer:?}"));
        self.settle_copy(read, &sent, answer.as_ref());
    }

    fn settle_copy(&self, read: u64, sent: &SentWrite, answer: ClientAnswerRef<'_, Copied>) {
        // NoSuchKey means the source or, with If-Match, the target.
        if matches!(
            (answer, &sent.condition),
            (Some(Err(Error::NoSuchKey)), ModelCondition::Always | ModelCondition::IfAbsent)
        ) {
            let mut ledger = self.context.ledger();
            ledger.answered(read, |_, value| value.is_none());
            ledger.refused(sent.write);
            return ledger.lost(sent.condition_read);
        }
        if let (Some(Err(Error::NoSuchKey)), ModelCondition::IfMatch(_)) = (answer, &sent.condition) {
            let mut ledger = self.context.ledger();
            ledger.refused(sent.write);
            ledger.lost(read);
            return ledger.lost(sent.condition_read);
        }
        {
            let mut ledger = self.context.ledger();
            match answer {
                Some(Ok(copied)) => {
                    let body = ledger.known(&copied.etag);
                    ledger.answered(read, |_, value| value == Some(body));
                }
                Some(Err(_)) | None => ledger.lost(read),
            }
        }
        self.settle(sent, answer);
    }
}

pub fn copy_source(key: &str) -> CopySource {
    CopySource { bucket: bucket(), key: parse_key(key), conditions: ReadConditions::default() }
}
