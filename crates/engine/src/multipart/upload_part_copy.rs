//! Creates a part from a range of an existing object.

use s3o_backend::ByteStream;
use s3o_catalog::{CommitPart, PartSource, WholeContent};
use s3o_model::checksum::Checksum;
use s3o_model::clock::Timestamp;
use s3o_model::content::Piece;
use s3o_model::etag::{ETag, Md5};
use s3o_model::multipart::Upload;
use s3o_model::object::Object;
use s3o_model::range::{ByteRange, RangeSpec};

use super::UploadRef;
use super::upload_part::check_part;
use crate::body::digest_of;
use crate::get_object::source_of;
use crate::read::ContentSource;
use crate::{CopySource, Declared, Engine, Error};

/// A request to create a part from an object.
#[derive(Debug, Clone)]
pub struct UploadPartCopy {
    /// Bucket, key and ID of an open upload.
    pub target: UploadRef,
    /// Part number, 1 to 10000.
    pub number: u32,
    /// The object to copy from, with its conditions.
    pub source: CopySource,
    /// Bytes to copy; both ends must be within the object. `None` copies all of it.
    pub range: Option<RangeSpec>,
}

/// Result of copying a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedPart {
    /// MD5 of the part.
    pub etag: ETag,
    /// Time of the commit.
    pub last_modified: Timestamp,
    /// Checksum, if the upload has one.
    pub checksum: Option<Checksum>,
}

/// Maximum number of attempts; an attempt fails if the source is replaced during it.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Creates a part from a range of an object.
    ///
    /// A range within one whole content becomes a reference to it. A range across several contents is copied.
    pub async fn upload_part_copy(&self, copy: UploadPartCopy) -> Result<CopiedPart, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.copy_part(copy).await }).await
    }

    async fn copy_part(&self, copy: UploadPartCopy) -> Result<CopiedPart, Error> {
        for _ in 0..ATTEMPTS_MAX {
            match self.copy_part_once(&copy).await {
                Err(Error::Conflict) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn copy_part_once(&self, copy: &UploadPartCopy) -> Result<CopiedPart, Error> {
        let upload = self.open_upload(&copy.target).await?;
        let resolved = self.copy_source(&copy.source).await?;
        let object = resolved.object.clone().ok_or(Error::NoSuchKey)?;
        let range = exact_range(copy.range, object.size_bytes)?;
        check_part(copy.number, range.length)?;
        if let Some(piece) = self.piece_with(&object, resolved.whole.clone(), range).await? {
            self.reference_part(copy, &upload, &piece, range).await
        } else {
            let body = self.read(source_of(resolved)?, range).await?;
            self.rewrite_part(copy, &upload, range.length, body).await
        }
    }

    /// The piece that covers the whole range; `None` if the range spans several pieces.
    async fn piece_with(
        &self,
        object: &Object,
        whole: Option<WholeContent>,
        range: ByteRange,
    ) -> Result<Option<Piece>, Error> {
        if let Some(whole) = whole {
            return Ok(Some(Piece {
                number: 1,
                start: 0,
                whole: object.content,
                offset: 0,
                length: object.size_bytes,
                whole_bytes: object.size_bytes,
                whole_md5: whole.md5,
                copies: whole.copies,
            }));
        }
        let pieces = self.catalog.pieces(object.content, range.start, range.end(), 1).await?;
        Ok(pieces.into_iter().next().filter(|piece| piece.start + piece.length >= range.end()))
    }

    async fn reference_part(
        &self,
        copy: &UploadPartCopy,
        upload: &Upload,
        piece: &Piece,
        range: ByteRange,
    ) -> Result<CopiedPart, Error> {
        let offset = piece.offset + (range.start - piece.start);
        let (md5, checksum) = self.range_digests(upload, piece, offset, range.length).await?;
        let commit = CommitPart {
            upload: upload.id,
            bucket: upload.bucket,
            factor: self.bucket_settings(&copy.target.bucket).factor,
            number: copy.number,
            content: piece.whole,
            length: range.length,
            md5,
            checksum: checksum.clone(),
            source: PartSource::Range { offset },
        };
        let last_modified = self.catalog.commit_part(&commit).await?;
        Ok(CopiedPart { etag: ETag::of_whole(md5), last_modified, checksum })
    }

    /// The digests of a range: recorded for a whole content, computed from the bytes for a part of it.
    async fn range_digests(
        &self,
        upload: &Upload,
        piece: &Piece,
        offset: u64,
        length: u64,
    ) -> Result<(Md5, Option<Checksum>), Error> {
        let algorithm = upload.checksum.map(|checksum| checksum.algorithm);
        if algorithm.is_none() && offset == 0 && length == piece.whole_bytes {
            return Ok((piece.whole_md5, None));
        }
        let (content, size_bytes) = (piece.whole, piece.whole_bytes);
        let source = ContentSource::Whole { content, size_bytes, copies: piece.copies.clone() };
        let body = self.read(source, ByteRange { start: offset, length }).await?;
        let digests = digest_of(body, length, algorithm).await?;
        Ok((digests.md5, digests.checksum))
    }

    async fn rewrite_part(
        &self,
        copy: &UploadPartCopy,
        upload: &Upload,
        length: u64,
        body: ByteStream,
    ) -> Result<CopiedPart, Error> {
        let compute = upload.checksum.map(|checksum| checksum.algorithm);
        let declared = Declared { compute, ..Declared::default() };
        let target = self.part_target(upload, &copy.target, copy.number, length);
        let written = self.write_bytes(target, body, declared).await?;
        let (stored, last_modified) = self.commit_part(upload, copy.number, length, written).await?;
        Ok(CopiedPart { etag: stored.etag, last_modified, checksum: stored.checksum })
    }
}

/// Unlike the range of a read, a copied range must be completely within its source.
fn exact_range(range: Option<RangeSpec>, size_bytes: u64) -> Result<ByteRange, Error> {
    let Some(range) = range else { return Ok(ByteRange::whole(size_bytes)) };
    let outside = Error::RangeNotSatisfiable { size_bytes };
    match range {
        RangeSpec::From { last: Some(last), .. } if last >= size_bytes => Err(outside),
        RangeSpec::From { .. } | RangeSpec::Suffix { .. } => range.resolve(size_bytes).map_err(|_| outside),
    }
}
