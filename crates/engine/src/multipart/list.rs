//! Lists open uploads, the parts of an upload, and the parts of an object.

use s3o_model::checksum::Checksum;
use s3o_model::clock::Timestamp;
use s3o_model::ids::UploadId;
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::listing::{ListQuery, before_nul, group_of};
use s3o_model::multipart::{Part, Upload, UploadChecksum};
use s3o_model::names::{BucketName, ObjectKey};

use super::{UploadRef, open};
use crate::{Engine, Error};

/// One page of the parts of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// The row in the catalog.
    pub upload: Upload,
    /// Parts in ascending order of their numbers.
    pub parts: Vec<Part>,
    /// Last part number of the page; `None` on the last page.
    pub next_after: Option<u32>,
    /// When a lifecycle rule aborts the upload if it is incomplete.
    pub expiration: Option<ScheduledDeletion>,
}

/// Parameters of a listing of uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsQuery {
    /// Only keys that start with this prefix.
    pub prefix: String,
    /// Keys with the same text up to this delimiter are grouped into one common prefix.
    pub delimiter: Option<String>,
    /// Only keys and common prefixes after this one.
    pub key_marker: Option<String>,
    /// With `key_marker`: also uploads of that key with a greater ID.
    pub upload_id_marker: Option<UploadId>,
    /// Maximum number of uploads and common prefixes together.
    pub limit: usize,
}

/// An open upload in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedUpload {
    /// Key of the object.
    pub key: ObjectKey,
    /// `UploadId` in the response.
    pub id: UploadId,
    /// `Initiated` in the response.
    pub created_at: Timestamp,
    /// Storage class of the object.
    pub storage_class: Option<String>,
    /// Checksum that the client requested.
    pub checksum: Option<UploadChecksum>,
}

/// One page of the open uploads of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenUploadsPage {
    /// Sorted by key, then ID.
    pub uploads: Vec<ListedUpload>,
    /// Common prefixes, sorted.
    pub prefixes: Vec<String>,
    /// The key or common prefix, and the upload, after which the next page starts; `None` on the last page.
    pub next: Option<(String, Option<UploadId>)>,
}

/// A part of a completed upload, as `GetObjectAttributes` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPart {
    /// Part number from the upload; numbers may have gaps.
    pub number: u32,
    /// Size in bytes.
    pub length: u64,
    /// Checksum, if the upload had one.
    pub checksum: Option<Checksum>,
}

impl Engine {
    /// One page of the parts of an open upload, after a part number.
    pub async fn list_parts(&self, target: &UploadRef, after: u32, limit: usize) -> Result<PartsPage, Error> {
        let resolved = self.find(&target.bucket, &target.key).await?;
        let upload = open(self.upload_in(resolved.bucket, target).await?)?;
        let mut parts = self.catalog.parts(upload.id, after, limit + 1).await?;
        let truncated = parts.len() > limit;
        parts.truncate(limit);
        let next_after = truncated.then(|| parts.last().map_or(after, |part| part.number));
        let expiration = self.expiration_of_upload(&target.bucket, &upload, resolved.rules).await;
        Ok(PartsPage { upload, parts, next_after, expiration })
    }

    /// One page of the open uploads of a bucket.
    pub async fn list_uploads(&self, bucket: &BucketName, query: UploadsQuery) -> Result<OpenUploadsPage, Error> {
        let bucket = self.find_bucket(bucket).await?;
        let mut builder = PageBuilder::new(query);
        while let Some((key, id)) = builder.next_position() {
            let after = (key.as_str(), id.as_str());
            let rows = self.catalog.open_uploads(bucket.id, &builder.query.prefix, after, PAGE_ROWS).await?;
            builder.feed(rows);
        }
        Ok(builder.page)
    }

    /// The parts of an object after a part number, and the number of all its parts. An object that was not uploaded in
    /// parts has none.
    pub async fn object_parts(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<ObjectPart>, u32), Error> {
        let resolved = self.find(bucket, key).await?;
        let object = resolved.object.ok_or(Error::NoSuchKey)?;
        if resolved.whole.is_some() {
            return Ok((Vec::new(), 0));
        }
        let numbered = self.catalog.numbered_pieces(object.content, after, limit).await?;
        let parts = numbered.pieces.iter().zip(numbered.checksums);
        let parts = parts.map(|(piece, checksum)| ObjectPart { number: piece.number, length: piece.length, checksum });
        Ok((parts.collect(), numbered.count))
    }
}

/// Number of rows that one catalog query returns.
const PAGE_ROWS: usize = 1000;

/// Builds one page. It reads every upload of a group, because open uploads are few.
struct PageBuilder {
    query: UploadsQuery,
    page: OpenUploadsPage,
    /// Start of the next rows; `None` when the page is complete.
    position: Option<(String, String)>,
}

impl PageBuilder {
    fn new(query: UploadsQuery) -> Self {
        let key = before_nul(query.key_marker.as_deref().unwrap_or_default()).to_owned();
        // Without an upload marker, all uploads of the marker's key were on earlier pages.
        let id = query.upload_id_marker.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let may_match = query.limit > 0 && !query.prefix.contains('\0');
        let position = may_match.then_some((key, id));
        Self { query, page: OpenUploadsPage::default(), position }
    }

    fn next_position(&self) -> Option<(String, String)> {
        self.position.clone()
    }

    fn feed(&mut self, rows: Vec<Upload>) {
        let full_page = rows.len() == PAGE_ROWS;
        self.position = rows.last().filter(|_| full_page).map(|row| (row.key.to_string(), row.id.to_string()));
        for row in rows {
            if !self.add(row) {
                self.position = None;
                return;
            }
        }
    }

    /// Adds a row; returns false if the page is full.
    fn add(&mut self, row: Upload) -> bool {
        let grouping = ListQuery {
            prefix: self.query.prefix.clone(),
            delimiter: self.query.delimiter.clone(),
            ..Default::default()
        };
        let group = group_of(&grouping, row.key.as_str()).map(str::to_owned);
        let shown =
            |group: &String| self.page.prefixes.last() == Some(group) || self.query.key_marker.as_ref() == Some(group);
        if group.as_ref().is_some_and(shown) {
            return true;
        }
        if self.page.uploads.len() + self.page.prefixes.len() == self.query.limit {
            self.page.next = self.last_shown();
            return false;
        }
        match group {
            Some(group) => self.page.prefixes.push(group),
            None => self.page.uploads.push(ListedUpload::from(row)),
        }
        true
    }

    fn last_shown(&self) -> Option<(String, Option<UploadId>)> {
        let upload = self.page.uploads.last().map(|upload| (upload.key.to_string(), Some(upload.id)));
        let prefix = self.page.prefixes.last().map(|prefix| (prefix.clone(), None));
        upload.into_iter().chain(prefix).max_by(|a, b| a.0.cmp(&b.0))
    }
}

impl From<Upload> for ListedUpload {
    fn from(upload: Upload) -> Self {
        Self {
            key: upload.key,
            id: upload.id,
            created_at: upload.created_at,
            storage_class: upload.attributes.headers.storage_class,
            checksum: upload.checksum,
        }
    }
}
