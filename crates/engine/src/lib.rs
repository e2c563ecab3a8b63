//! What a request means: one file per operation.
//!
//! The engine knows the catalog and the backends and brings them together: an intent before every
//! write, a queue row before every delete, no backend call inside a transaction.

mod body;
mod bucket_tags;
mod buckets;
mod cached;
mod capacity;
mod copy_object;
mod delete_object;
mod delete_objects;
mod departure;
pub mod digest;
mod engine;
pub mod error;
mod expiry;
mod get_object;
mod head_object;
pub mod leases;
mod lifecycle;
mod list_objects;
mod metrics;
pub mod multipart;
mod object_tags;
mod proof;
mod put_object;
mod read;
mod reread;
pub mod tasks;
mod write;

pub use buckets::Created;
pub use copy_object::{Copied, CopyObject, CopySource};
pub use delete_object::DeleteObject;
pub use delete_objects::{DeleteFailure, DeleteTarget};
pub use engine::{Engine, Orphan, OrphanAlarm, Parts as EngineParts, Settings};
pub use error::{BackendTrouble, Error};
pub use get_object::{GetObject, Opened};
pub use head_object::{Found, Wanted};
pub use metrics::{IntentMetrics, Resolving};
pub use put_object::{Declared, PutObject, Stored, Trailer};
pub use reread::reread;
pub use s3o_backend::{BodyError, ByteStream};
pub use s3o_catalog::ExpiredObject;
