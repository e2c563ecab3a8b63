//! How clients compare the answers to writes with the ledger.

use s3o_engine::multipart::Completed;
use s3o_engine::{Copied, Error, StoredObject};
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;
use s3o_model::lifecycle::DeletionCause;

use crate::client::{ClientAnswerRef, SimulatedClient};
use crate::model::{ModelCondition, ModelRequest};

impl SimulatedClient {
    /// Compares the answer to a write with the ledger; true if the write was acknowledged.
    pub fn settle<T: WriteAnswer>(&self, sent: &SentWrite, answer: ClientAnswerRef<'_, T>) -> bool {
        let mut ledger = self.context.ledger();
        match answer {
            Some(Ok(done)) => {
                let value = done.etag().map(|etag| ledger.known(etag));
                if let Some(moment) = done.expires_at() {
                    ledger.confirm_expiry(sent.write, moment);
                }
                ledger.answered(sent.write, |_, seen| seen == value);
                ledger.lost(sent.condition_read);
                self.context.journal.count("writes acknowledged");
                return true;
            }
            Some(Err(Error::PreconditionFailed(_) | Error::NoSuchKey)) => {
                ledger.refused(sent.write);
                let condition = sent.condition.clone();
                ledger.answered(sent.condition_read, |_, seen| !condition.holds(seen));
                self.context.journal.count("writes refused by their condition");
            }
            Some(Err(
                error @ (Error::NoSpace | Error::Body(_) | Error::Parts(_) | Error::NoSuchUpload | Error::Expiry(_)),
            )) => {
                ledger.refused(sent.write);
                ledger.lost(sent.condition_read);
                let late = matches!(error, Error::Expiry(_));
                self.context.journal.count(if late { "writes with an expiry in the past" } else { "writes refused" });
            }
            Some(Err(_)) => {
                ledger.lost(sent.write);
                ledger.lost(sent.condition_read);
                self.context.journal.count("writes of unknown outcome");
            }
            None => {
                ledger.abandoned.push(sent.write);
                ledger.lost(sent.condition_read);
            }
        }
        false
    }
}

/// An open write: its effect, and the read of the key that its condition is checked against.
pub struct SentWrite {
    pub write: ModelRequest,
    pub condition_read: ModelRequest,
    pub condition: ModelCondition,
}

/// What the answer to a write says about the object that it wrote.
pub trait WriteAnswer {
    fn etag(&self) -> Option<&ETag>;
    /// None if the object has no expiry, or if a lifecycle rule deletes it earlier.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// The answer to a delete.
impl WriteAnswer for () {
    fn etag(&self) -> Option<&ETag> {
        None
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

macro_rules! write_answer {
    ($($answer:ty),+) => {
        $(impl WriteAnswer for $answer {
            fn etag(&self) -> Option<&ETag> {
                Some(&self.etag)
            }

            fn expires_at(&self) -> Option<Timestamp> {
                let own = self.expiration.as_ref().filter(|deletion| deletion.by == DeletionCause::Expiry);
                own.map(|deletion| deletion.at)
            }
        })+
    };
}

write_answer!(StoredObject, Copied, Completed);
