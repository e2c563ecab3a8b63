//! S3 operations on the catalog and the backends, one file per operation.
//!
//! The catalog commits an intent before every backend write and a queue row before every backend delete. No backend
//! call happens inside a transaction.

mod body;
mod bucket_tags;
mod buckets;
mod cached;
mod capacity;
mod copy_checker;
mod copy_object;
mod delete_object;
mod delete_objects;
pub mod digest;
mod engine;
pub mod error;
mod expiration;
mod get_object;
mod head_object;
pub mod leases;
mod lifecycle;
mod list_objects;
mod metrics;
pub mod multipart;
mod object_tags;
mod prefix_operations;
mod prove_copies;
mod put_object;
mod read;
mod rebalance;
mod replicas;
mod reread;
pub mod tasks;
mod write;

pub use buckets::BucketCreated;
pub use copy_object::{Copied, CopyObject, CopySource};
pub use delete_object::DeleteObject;
pub use delete_objects::{DeleteFailure, DeleteTarget};
pub use engine::{Engine, EngineParts, Orphan, OrphanAlarm, Settings};
pub use error::{BackendTrouble, Error};
pub use get_object::{GetObject, OpenedObject};
pub use head_object::{FoundObject, RequestedRange};
pub use metrics::{IntentMetrics, Resolving};
pub use prefix_operations::{PREFIX_OPERATION_LEASE, PrefixEvent, PrefixRefused, PrefixRequest, run_prefix_step};
pub use put_object::{Declared, PutObject, StoredObject, Trailer};
pub use replicas::{CopyObstacle, CopyOutcome};
pub use reread::reread;
pub use s3o_backend::{BodyError, ByteStream};
pub use s3o_catalog::ExpiredObject;
pub use write::ContentSharing;
