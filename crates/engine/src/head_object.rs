//! Returns the attributes of an object without its bytes.

use s3o_catalog::Resolved;
use s3o_model::conditions::ReadVerdict;
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::object::Object;
use s3o_model::range::{ByteRange, RangeSpec};

use crate::{Engine, Error, GetObject};

/// The bytes of an object that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestedRange {
    /// The complete object.
    #[default]
    Whole,
    /// The `Range` header.
    Range(RangeSpec),
    /// The part with this number (`partNumber`).
    Part(u32),
}

/// An object that meets the conditions of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// The current row of the key.
    pub object: Object,
    /// The requested bytes, limited to the object.
    pub range: ByteRange,
    /// True if the client requested a range or a part, even one that covers the whole object: the response is 206.
    pub partial: bool,
    /// Number of parts, if the object was uploaded in parts and the client requested one.
    pub parts_count: Option<u32>,
    /// When the object expires or a lifecycle rule deletes it.
    pub expiration: Option<ScheduledDeletion>,
}

impl Engine {
    /// Evaluates the conditions of a read and returns the attributes of the object.
    pub async fn head_object(&self, get: &GetObject) -> Result<FoundObject, Error> {
        let resolved = self.find(&get.bucket, &get.key).await?;
        self.found(get, &resolved).await
    }

    pub(crate) async fn found(&self, get: &GetObject, resolved: &Resolved) -> Result<FoundObject, Error> {
        let object = resolved.object.clone().ok_or(Error::NoSuchKey)?;
        match get.conditions.judge(&object.etag, object.last_modified) {
            ReadVerdict::Proceed => {}
            ReadVerdict::Failed => return Err(Error::PreconditionFailed("If-Match or If-Unmodified-Since")),
            ReadVerdict::NotModified => {
                return Err(Error::NotModified { etag: object.etag, last_modified: object.last_modified });
            }
        }
        let size_bytes = object.size_bytes;
        let (range, parts_count) = match get.wanted {
            RequestedRange::Whole => (ByteRange::whole(size_bytes), None),
            RequestedRange::Range(range) => {
                (range.resolve(size_bytes).map_err(|_| Error::RangeNotSatisfiable { size_bytes })?, None)
            }
            RequestedRange::Part(number) => self.part_range(&object, resolved.whole.is_some(), number).await?,
        };
        let expiration = self.expiration(&get.bucket, &object, resolved.rules).await;
        Ok(FoundObject { object, range, partial: get.wanted != RequestedRange::Whole, parts_count, expiration })
    }

    /// An object that was not uploaded in parts has one part with the number 1.
    async fn part_range(
        &self,
        object: &Object,
        is_whole: bool,
        number: u32,
    ) -> Result<(ByteRange, Option<u32>), Error> {
        if is_whole {
            let only = (number == 1).then_some((ByteRange::whole(object.size_bytes), None));
            return only.ok_or(Error::NoSuchPart);
        }
        let numbered = self.catalog.numbered_pieces(object.content, number.saturating_sub(1), 1).await?;
        let piece = numbered.pieces.first().filter(|piece| piece.number == number).ok_or(Error::NoSuchPart)?;
        Ok((ByteRange { start: piece.start, length: piece.length }, Some(numbered.count)))
    }
}
