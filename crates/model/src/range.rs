//! Byte ranges of requests, and their resolution against the size of an object.

/// A range as in a `Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeSpec {
    /// From `first` to `last` inclusive, or to the end of the object.
    From {
        /// Position of the first byte.
        first: u64,
        /// Position of the last byte; `None` means the end.
        last: Option<u64>,
    },
    /// The last `length` bytes.
    Suffix {
        /// Number of bytes.
        length: u64,
    },
}

/// A range within an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Position of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

impl ByteRange {
    /// The range of a whole object.
    #[must_use]
    pub const fn whole(size_bytes: u64) -> Self {
        Self { start: 0, length: size_bytes }
    }

    /// Position after the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.length
    }

    /// The intersection with `start..start + length`; `None` if it is empty.
    #[must_use]
    pub fn overlap(&self, start: u64, length: u64) -> Option<Self> {
        let from = self.start.max(start);
        let to = self.end().min(start + length);
        (from < to).then(|| Self { start: from, length: to - from })
    }
}

/// The range contains no byte of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range contains no byte of the object")]
pub struct Unsatisfiable;

impl RangeSpec {
    /// Limits the range to an object of this size.
    pub fn resolve(self, size_bytes: u64) -> Result<ByteRange, Unsatisfiable> {
        match self {
            Self::From { first, last } => {
                let last = last.unwrap_or(u64::MAX).min(size_bytes.saturating_sub(1));
                if first >= size_bytes || last < first {
                    return Err(Unsatisfiable);
                }
                Ok(ByteRange { start: first, length: last - first + 1 })
            }
            Self::Suffix { length } => {
                let length = length.min(size_bytes);
                if length == 0 {
                    return Err(Unsatisfiable);
                }
                Ok(ByteRange { start: size_bytes - length, length })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, RangeSpec, Unsatisfiable};

    const fn from(first: u64, last: Option<u64>) -> RangeSpec {
        RangeSpec::From { first, last }
    }

    #[test]
    fn ranges_are_limited_to_the_object() {
        assert_eq!(from(0, Some(3)).resolve(10), Ok(ByteRange { start: 0, length: 4 }));
        assert_eq!(from(8, Some(99)).resolve(10), Ok(ByteRange { start: 8, length: 2 }));
        assert_eq!(from(4, None).resolve(10), Ok(ByteRange { start: 4, length: 6 }));
        assert_eq!(RangeSpec::Suffix { length: 3 }.resolve(10), Ok(ByteRange { start: 7, length: 3 }));
        assert_eq!(RangeSpec::Suffix { length: 30 }.resolve(10), Ok(ByteRange { start: 0, length: 10 }));
    }

    #[test]
    fn empty_range_is_unsatisfiable() {
        for range in [from(10, None), from(5, Some(4)), RangeSpec::Suffix { length: 0 }] {
            assert_eq!(range.resolve(10), Err(Unsatisfiable), "{range:?}");
        }
        assert_eq!(from(0, None).resolve(0), Err(Unsatisfiable));
        assert_eq!(RangeSpec::Suffix { length: 1 }.resolve(0), Err(Unsatisfiable));
    }

    #[test]
    fn overlaps_are_exact() {
        let range = ByteRange { start: 5, length: 10 };
        assert_eq!(range.overlap(0, 6), Some(ByteRange { start: 5, length: 1 }));
        assert_eq!(range.overlap(15, 5), None);
        assert_eq!(range.overlap(0, 2), None);
        assert_eq!(range.overlap(20, 2), None);
    }
}
