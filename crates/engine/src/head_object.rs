//! Describes an object without its bytes.

use s3o_catalog::Resolved;
use s3o_model::conditions::ReadVerdict;
use s3o_model::lifecycle::Departure;
use s3o_model::object::Object;
use s3o_model::range::{ByteRange, RangeSpec};

use crate::{Engine, Error, GetObject};

/// How much of an object a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wanted {
    /// All of it.
    #[default]
    Whole,
    /// A range.
    Range(RangeSpec),
    /// The part with this number.
    Part(u32),
}

/// An object that fits a reader's conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The object.
    pub object: Object,
    /// What of it was asked for.
    pub range: ByteRange,
    /// Whether the reader asked for less than everything, even if it turned out to be all.
    pub partial: bool,
    /// How many parts it has, where it was made of parts and one was asked for.
    pub parts_count: Option<u32>,
    /// When it goes by itself.
    pub departure: Option<Departure>,
}

impl Engine {
    /// Describes an object.
    pub async fn head_object(&self, get: &GetObject) -> Result<Found, Error> {
        let resolved = self.find(&get.bucket, &get.key).await?;
        self.found(get, &resolved).await
    }

    /// Judges the conditions and works out the range.
    pub(crate) async fn found(&self, get: &GetObject, resolved: &Resolved) -> Result<Found, Error> {
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
            Wanted::Whole => (ByteRange::whole(size_bytes), None),
            Wanted::Range(range) => {
                (range.resolve(size_bytes).map_err(|_| Error::RangeNotSatisfiable { size_bytes })?, None)
            }
            Wanted::Part(number) => self.part_range(&object, resolved.whole.is_some(), number).await?,
        };
        let departure = self.departure(&get.bucket, &object, resolved.rules).await;
        Ok(Found { object, range, partial: get.wanted != Wanted::Whole, parts_count, departure })
    }

    /// An object that was stored in one go is its own first part.
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
        let numbered = self.objects.numbered_pieces(object.content, number.saturating_sub(1), 1).await?;
        let piece = numbered.pieces.first().filter(|piece| piece.number == number).ok_or(Error::NoSuchPart)?;
        Ok((ByteRange { start: piece.start, length: piece.length }, Some(numbered.count)))
    }
}
