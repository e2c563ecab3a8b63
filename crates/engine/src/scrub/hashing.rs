//! Hashes the bytes of a copy beside its read: the next bytes are read while a blocking thread hashes the last ones.

use bytes::Bytes;
use md5::Digest as _;
use s3o_catalog::ScrubCopy;
use s3o_model::etag::{Md5, Sha256};
use tokio::task::JoinHandle;

/// Up to this size, hashing is cheaper than moving the bytes to another thread.
const INLINE_BYTES_MAX: u64 = 128 * 1024;
/// Number of bytes that another thread hashes at a time.
const BATCH_BYTES: usize = 1024 * 1024;

/// The digests of a read. The MD5 is computed only for content without a SHA-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundDigests {
    pub sha256: Sha256,
    pub md5: Option<Md5>,
}

impl FoundDigests {
    /// The digest that is compared.
    pub fn compared(&self) -> String {
        self.md5.map_or_else(|| self.sha256.to_string(), |md5| md5.to_string())
    }

    /// The digest that the catalog has. Content without any is right by definition.
    pub fn expected(&self, copy: &ScrubCopy) -> String {
        match (copy.sha256, copy.md5) {
            (Some(sha256), _) => sha256.to_string(),
            (None, Some(md5)) => md5.to_string(),
            (None, None) => self.compared(),
        }
    }
}

#[derive(Debug)]
struct Digesting {
    sha256: sha2::Sha256,
    md5: Option<md5::Md5>,
}

impl Digesting {
    fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }
}

#[derive(Debug)]
enum Place {
    Here(Box<Digesting>),
    Elsewhere(JoinHandle<Box<Digesting>>),
}

/// Computes the digests of one read.
#[derive(Debug)]
pub(super) struct SliceHasher {
    place: Place,
    is_inline: bool,
    batch: Vec<Bytes>,
    batch_bytes: usize,
}

impl SliceHasher {
    pub fn of(copy: &ScrubCopy) -> Self {
        let md5 = copy.sha256.is_none().then(md5::Md5::default);
        let digesting = Box::new(Digesting { sha256: sha2::Sha256::default(), md5 });
        let is_inline = copy.size_bytes <= INLINE_BYTES_MAX;
        Self { place: Place::Here(digesting), is_inline, batch: Vec::new(), batch_bytes: 0 }
    }

    pub async fn take(&mut self, chunk: Bytes) -> Result<(), String> {
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        if self.batch_bytes < BATCH_BYTES {
            return Ok(());
        }
        self.hash_batch().await
    }

    async fn hash_batch(&mut self) -> Result<(), String> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let mut digesting = match &mut self.place {
            Place::Elsewhere(task) => task.await.map_err(|error| format!("hashing stopped: {error}"))?,
            Place::Here(digesting) => {
                let empty = Box::new(Digesting { sha256: sha2::Sha256::default(), md5: None });
                std::mem::replace(digesting, empty)
            }
        };
        let hash = move || {
            for chunk in batch {
                digesting.update(&chunk);
            }
            digesting
        };
        self.place =
            if self.is_inline { Place::Here(hash()) } else { Place::Elsewhere(tokio::task::spawn_blocking(hash)) };
        Ok(())
    }

    pub async fn finish(mut self) -> Result<FoundDigests, String> {
        self.hash_batch().await?;
        let digesting = match self.place {
            Place::Here(digesting) => digesting,
            Place::Elsewhere(task) => task.await.map_err(|error| format!("hashing stopped: {error}"))?,
        };
        let Digesting { sha256, md5 } = *digesting;
        Ok(FoundDigests { sha256: Sha256(sha256.finalize().into()), md5: md5.map(|md5| Md5(md5.finalize().into())) })
    }
}
