//! Makes a part from an object that is already stored.

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
use crate::read::Source;
use crate::{CopySource, Declared, Engine, Error};

/// A request to make a part from an object.
#[derive(Debug, Clone)]
pub struct UploadPartCopy {
    /// The upload.
    pub target: UploadRef,
    /// The part's number, 1 to 10000.
    pub number: u32,
    /// Where from.
    pub source: CopySource,
    /// Which bytes; both ends must lie in the object.
    pub range: Option<RangeSpec>,
}

/// A part made from an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartCopied {
    /// Its `ETag`.
    pub etag: ETag,
    /// When it was made.
    pub last_modified: Timestamp,
    /// Its checksum, where the upload has one.
    pub checksum: Option<Checksum>,
}

/// How often a copy starts over because its source changed meanwhile.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Makes a part from a range of an object.
    ///
    /// A range inside one whole content becomes a reference to it; across several, bytes are
    /// copied.
    pub async fn upload_part_copy(&self, copy: UploadPartCopy) -> Result<PartCopied, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.copy_part(copy).await }).await
    }

    async fn copy_part(&self, copy: UploadPartCopy) -> Result<PartCopied, Error> {
        for _ in 0..ATTEMPTS_MAX {
            match self.copy_part_once(&copy).await {
                Err(Error::Conflict) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn copy_part_once(&self, copy: &UploadPartCopy) -> Result<PartCopied, Error> {
        let upload = self.open_upload(&copy.target).await?;
        let resolved = self.copy_source(&copy.source).await?;
        let object = resolved.object.clone().ok_or(Error::NoSuchKey)?;
        let range = exact_range(copy.range, object.size_bytes)?;
        check_part(copy.number, range.length)?;
        if let Some(piece) = self.piece_with(&object, resolved.whole.clone(), range).await? {
            self.refer_part(copy, &upload, &piece, range).await
        } else {
            let body = self.read(source_of(resolved)?, range).await?;
            self.rewrite_part(copy, &upload, range.length, body).await
        }
    }

    /// The piece that holds all of the range, if one does.
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
                locations: whole.locations,
            }));
        }
        let pieces = self.objects.pieces(object.content, range.start, range.end(), 1).await?;
        Ok(pieces.into_iter().next().filter(|piece| piece.start + piece.length >= range.end()))
    }

    async fn refer_part(
        &self,
        copy: &UploadPartCopy,
        upload: &Upload,
        piece: &Piece,
        range: ByteRange,
    ) -> Result<PartCopied, Error> {
        let offset = piece.offset + (range.start - piece.start);
        let (md5, checksum) = self.range_digests(upload, piece, offset, range.length).await?;
        let commit = CommitPart {
            upload: upload.id,
            number: copy.number,
            content: piece.whole,
            length: range.length,
            md5,
            checksum: checksum.clone(),
            source: PartSource::Range { offset },
        };
        let last_modified = self.uploads.commit_part(commit).await?;
        Ok(PartCopied { etag: ETag::of_whole(md5), last_modified, checksum })
    }

    /// The digests of a range: known for all of a content, read once for less.
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
        let source = Source::Whole { content, size_bytes, locations: piece.locations.clone() };
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
    ) -> Result<PartCopied, Error> {
        let compute = upload.checksum.map(|checksum| checksum.algorithm);
        let declared = Declared { compute, ..Declared::default() };
        let target = self.part_target(upload, &copy.target, copy.number, length);
        let written = self.write_bytes(target, body, declared).await?;
        let (stored, last_modified) = self.commit_part(upload, copy.number, length, written).await?;
        Ok(PartCopied { etag: stored.etag, last_modified, checksum: stored.checksum })
    }
}

/// Unlike a read, a copied range must lie wholly inside its source.
fn exact_range(range: Option<RangeSpec>, size_bytes: u64) -> Result<ByteRange, Error> {
    let Some(range) = range else { return Ok(ByteRange::whole(size_bytes)) };
    let outside = Error::RangeNotSatisfiable { size_bytes };
    match range {
        RangeSpec::From { last: Some(last), .. } if last >= size_bytes => Err(outside),
        RangeSpec::From { .. } | RangeSpec::Suffix { .. } => range.resolve(size_bytes).map_err(|_| outside),
    }
}
