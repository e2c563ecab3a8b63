//! Lists uploads, their parts, and the parts of finished objects.

use s3o_model::checksum::Checksum;
use s3o_model::clock::Timestamp;
use s3o_model::ids::UploadId;
use s3o_model::lifecycle::Departure;
use s3o_model::listing::{ListQuery, before_nul, group_of};
use s3o_model::multipart::{Part, Upload, UploadChecksum};
use s3o_model::names::{BucketName, ObjectKey};

use super::{UploadRef, open};
use crate::{Engine, Error};

/// One page of an upload's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// The upload.
    pub upload: Upload,
    /// Its parts by number.
    pub parts: Vec<Part>,
    /// The last number, if more follow.
    pub next_after: Option<u32>,
    /// When the upload is aborted if nobody completes it.
    pub departure: Option<Departure>,
}

/// What a client asks for when it lists uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsQuery {
    /// Only keys that start with this.
    pub prefix: String,
    /// Rolls keys up.
    pub delimiter: Option<String>,
    /// Only after this key (or this common prefix).
    pub key_marker: Option<String>,
    /// With `key_marker`: also uploads of that very key with a greater id.
    pub upload_id_marker: Option<UploadId>,
    /// At most this many uploads and common prefixes together.
    pub limit: usize,
}

/// An open upload in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedUpload {
    /// Its key.
    pub key: ObjectKey,
    /// Its identifier.
    pub id: UploadId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The storage class the object will have.
    pub storage_class: Option<String>,
    /// Which checksum the client wants.
    pub checksum: Option<UploadChecksum>,
}

/// One page of a bucket's open uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// Uploads by key, then id.
    pub uploads: Vec<ListedUpload>,
    /// Common prefixes.
    pub prefixes: Vec<String>,
    /// The key (or common prefix) and upload the next page starts after, if more follow.
    pub next: Option<(String, Option<UploadId>)>,
}

/// A part of a finished object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectPart {
    /// Its number.
    pub number: u32,
    /// Its length.
    pub length: u64,
    /// Its checksum, where the object was uploaded with one.
    pub checksum: Option<Checksum>,
}

impl Engine {
    /// One page of an upload's parts.
    pub async fn list_parts(&self, target: &UploadRef, after: u32, limit: usize) -> Result<PartsPage, Error> {
        let there = self.find(&target.bucket, &target.key).await?;
        let upload = open(self.upload_in(there.bucket, target).await?)?;
        let mut parts = self.uploads.parts(upload.id, after, limit + 1).await?;
        let truncated = parts.len() > limit;
        parts.truncate(limit);
        let next_after = truncated.then(|| parts.last().map_or(after, |part| part.number));
        let departure = self.departure_of_upload(&target.bucket, &upload, there.rules).await;
        Ok(PartsPage { upload, parts, next_after, departure })
    }

    /// One page of a bucket's open uploads.
    pub async fn list_uploads(&self, bucket: &BucketName, query: UploadsQuery) -> Result<UploadsPage, Error> {
        let bucket = self.find_bucket(bucket).await?;
        let mut builder = PageBuilder::new(query);
        while let Some((key, id)) = builder.wants_more() {
            let after = (key.as_str(), id.as_str());
            let rows = self.uploads.open_uploads(bucket.id, &builder.query.prefix, after, PAGE_ROWS).await?;
            builder.feed(rows);
        }
        Ok(builder.page)
    }

    /// The parts of a finished object after a number, and how many it has in all; an object that
    /// was stored in one go has none.
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
        let numbered = self.objects.numbered_pieces(object.content, after, limit).await?;
        let parts = numbered.pieces.iter().zip(numbered.checksums);
        let parts = parts.map(|(piece, checksum)| ObjectPart { number: piece.number, length: piece.length, checksum });
        Ok((parts.collect(), numbered.count))
    }
}

/// How many rows are read at a time.
const PAGE_ROWS: usize = 1000;

/// Rolls uploads up into a page. Open uploads are few, so groups are read through.
struct PageBuilder {
    query: UploadsQuery,
    page: UploadsPage,
    /// Where the next rows start; `None` when the page is complete.
    position: Option<(String, String)>,
}

impl PageBuilder {
    fn new(query: UploadsQuery) -> Self {
        let key = before_nul(query.key_marker.as_deref().unwrap_or_default()).to_owned();
        // Without an upload to go on from, everything under the marker's own key was shown.
        let id = query.upload_id_marker.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let may_match = query.limit > 0 && !query.prefix.contains('\0');
        let position = may_match.then_some((key, id));
        Self { query, page: UploadsPage::default(), position }
    }

    fn wants_more(&self) -> Option<(String, String)> {
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

    /// Takes a row; `false` if the page is full.
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
