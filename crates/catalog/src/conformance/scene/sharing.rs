//! Shortcuts for facts about content that is kept once.

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::Sha256;
use s3o_model::ids::{BucketId, ContentId, InstanceId, IntentId, WriteId};
use s3o_model::intent::{Intent, IntentKind};

use super::{LEASE, Scene, backend};
use crate::{CommitPut, Committed, Error, Intents, Landed, Objects, Pin, Pinned};

/// How long the bodies of these facts are.
pub const BODY_BYTES: u64 = 5;

/// The digest of a body, by its number.
#[must_use]
pub fn digest(body: u8) -> Sha256 {
    Sha256([body; 32])
}

impl Scene {
    /// What a commit of that write says in a bucket that keeps equal content once.
    #[must_use]
    pub fn shared_put_of(&self, intent: &Intent, body: u8) -> CommitPut {
        let put = self.put_of(intent, WriteCondition::None);
        CommitPut { sha256: Some(digest(body)), dedup: Some(intent.bucket), ..put }
    }

    /// Stores a body under a key of a bucket that keeps equal content once; the content that the object refers to.
    pub async fn share(&self, bucket: BucketId, key: &str, body: u8) -> ContentId {
        let intent = self.staged(bucket, key, BODY_BYTES).await;
        self.catalog.commit_put(self.shared_put_of(&intent, body)).await.expect("committed");
        self.content_of(bucket, key).await
    }

    /// The same, with its bytes on a backend of this name.
    pub async fn share_on(&self, name: &str, bucket: BucketId, key: &str, body: u8) -> ContentId {
        self.attach(name, None).await;
        let intent = Intent { backend: backend(name), ..self.intent(bucket, key, BODY_BYTES) };
        self.try_stage(&intent).await.expect("staged");
        self.catalog.commit_put(self.shared_put_of(&intent, body)).await.expect("committed");
        self.content_of(bucket, key).await
    }

    /// The content that an object refers to.
    pub async fn content_of(&self, bucket: BucketId, key: &str) -> ContentId {
        let sql = "SELECT content_id FROM objects WHERE bucket_id = $1 AND key = $2";
        self.rows(sql, crate::params![bucket, key]).await[0].parse(0).expect("a content")
    }

    /// What is asked of a pin for an object.
    #[must_use]
    pub fn pin_of(&self, bucket: BucketId, key: &str, body: u8) -> Pin {
        let id = self.content().uuid();
        Pin {
            id: IntentId::new(id),
            write: WriteId::new(id),
            kind: IntentKind::Object,
            bucket,
            key: key.parse().expect("a valid key"),
            sha256: digest(body),
            size_bytes: BODY_BYTES,
            owner: InstanceId::new(id),
            lease: LEASE,
        }
    }

    /// A pin on a body that is known.
    pub async fn pinned(&self, bucket: BucketId, key: &str, body: u8) -> (Pin, Pinned) {
        let pin = self.pin_of(bucket, key, body);
        let held = self.catalog.pin(&pin).await.expect("a look").expect("a known body");
        (pin, held)
    }

    /// What a commit of that pin says.
    #[must_use]
    pub fn pinned_put_of(&self, pin: &Pin, content: ContentId) -> CommitPut {
        let fresh = self.content();
        CommitPut {
            landed: Landed::Pinned { write: pin.write, content },
            content: fresh,
            md5: super::md5_of(fresh),
            sha256: Some(pin.sha256),
            dedup: Some(pin.bucket),
            row: self.row(pin.bucket, pin.key.as_str(), fresh, pin.size_bytes),
            condition: WriteCondition::None,
            is_first: true,
        }
    }

    /// Commits a pinned write.
    pub async fn commit_pinned(&self, pin: &Pin, content: ContentId) -> Result<Committed, Error> {
        self.catalog.commit_put(self.pinned_put_of(pin, content)).await
    }

    /// Where content lies, and what is thought of it there.
    pub async fn places(&self, content: ContentId) -> Vec<(String, String)> {
        let sql = "SELECT physical_key, state FROM object_locations WHERE content_id = $1 ORDER BY backend_name";
        let rows = self.rows(sql, crate::params![content]).await;
        let text = |row: &crate::unit::Row, column| row.text(column).expect("text").to_owned();
        rows.iter().map(|row| (text(row, 0), text(row, 1))).collect()
    }

    /// Calls every copy of content good or bad.
    pub async fn call(&self, content: ContentId, state: &str) {
        self.change("UPDATE object_locations SET state = $2 WHERE content_id = $1", crate::params![content, state])
            .await;
    }
}
