//! Shortcuts for facts about uploads.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::{BucketId, ContentId, UploadId};
use s3o_model::intent::{Intent, IntentKind};
use s3o_model::multipart::{CompletedAnswer, Upload, UploadState};
use s3o_model::object::Attributes;

use super::{Scene, announced, md5_of};
use crate::{CommitPart, CompleteRow, Error, PartSource, Uploads, params};

impl Scene {
    /// An open upload.
    pub async fn upload(&self, bucket: BucketId, key: &str) -> UploadId {
        let id = UploadId::new(self.content().uuid());
        let upload = Upload {
            id,
            bucket,
            key: key.parse().expect("a valid key"),
            attributes: Attributes::default(),
            checksum: None,
            expiry: None,
            created_at: self.now(),
            state: UploadState::Open,
        };
        self.catalog.create_upload(&upload).await.expect("created");
        id
    }

    /// An announced write of a part.
    pub async fn staged_part(&self, upload: UploadId, number: u32, size_bytes: u64) -> Intent {
        let found = self.catalog.upload(upload).await.expect("a look").expect("the upload");
        let mut intent = self.intent(found.bucket, found.key.as_str(), size_bytes);
        intent.kind = IntentKind::Part { upload, number };
        self.try_stage(&intent).await.expect("staged");
        intent
    }

    /// Commits an announced write of a part; its content is returned.
    pub async fn commit_part(&self, intent: &Intent) -> Result<ContentId, Error> {
        let IntentKind::Part { upload, number } = intent.kind else { panic!("not a part") };
        let content = self.content();
        let source = PartSource::Written { landed: announced(intent.write, 1), sha256: None, dedup: None };
        let part = self.part_of(upload, number, (content, intent.size_bytes), source);
        self.catalog.commit_part(part).await.map(|_| content)
    }

    /// What a commit of a part says.
    #[must_use]
    pub fn part_of(&self, upload: UploadId, number: u32, bytes: (ContentId, u64), source: PartSource) -> CommitPart {
        let (content, length) = bytes;
        CommitPart { upload, number, content, length, md5: md5_of(content), checksum: None, source }
    }

    /// Uploads a part.
    pub async fn part(&self, upload: UploadId, number: u32, size_bytes: u64) -> (u32, ContentId) {
        let intent = self.staged_part(upload, number, size_bytes).await;
        (number, self.commit_part(&intent).await.expect("committed"))
    }

    /// Gives an upload this many parts in one statement, each the same range of content.
    pub async fn parts_of(&self, upload: UploadId, count: u32, source: (ContentId, u64)) -> Vec<(u32, ContentId)> {
        const MORE: &str = "INSERT INTO multipart_parts \
             (upload_id, number, content_id, byte_offset, length, md5, last_modified) \
             WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2) \
             SELECT upload_id, n, content_id, byte_offset, length, md5, last_modified FROM numbers CROSS JOIN multipart_parts \
             WHERE upload_id = $1 AND number = 1";
        let first = self.part_of(upload, 1, source, PartSource::Range { offset: 0 });
        self.catalog.commit_part(first).await.expect("committed");
        self.change(MORE, params![upload, count]).await;
        let refer = "UPDATE contents SET ref_count = ref_count + $2 - 1 WHERE id = $1";
        self.change(refer, params![source.0, count]).await;
        (1..=count).map(|number| (number, source.0)).collect()
    }

    /// What a Complete of those parts says.
    pub async fn completion(&self, upload: UploadId, parts: &[(u32, ContentId)]) -> CompleteRow {
        let found = self.catalog.upload(upload).await.expect("a look").expect("the upload");
        let stored = self.catalog.parts(upload, 0, 10_000).await.expect("parts");
        let listed = stored.iter().filter(|part| parts.iter().any(|(number, _)| *number == part.number));
        let size_bytes = listed.map(|part| part.length).sum();
        let content = self.content();
        let row = self.row(found.bucket, found.key.as_str(), content, size_bytes);
        let answer = CompletedAnswer {
            etag: row.etag.clone(),
            version: row.version,
            size_bytes,
            checksum: None,
            request: "as asked".to_owned(),
        };
        CompleteRow { upload, content, parts: parts.to_vec(), row, condition: WriteCondition::None, answer }
    }

    /// Makes one object of those parts; its joined content is returned.
    pub async fn complete(&self, upload: UploadId, parts: &[(u32, ContentId)]) -> Result<ContentId, Error> {
        let complete = self.completion(upload, parts).await;
        let content = complete.content;
        self.catalog.complete_upload(complete).await.map(|_| content)
    }
}
