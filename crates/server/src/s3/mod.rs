//! The S3 API: translates requests for the engine and results back.
//!
//! The protocol library (`s3s`) parses requests and verifies signatures; its types do not leave this folder. Each
//! family of operations has one file: translate the input, call the engine, translate the output. `operations` is
//! the table of all operations, `compat` holds the work-arounds for the library.

mod access;
mod acl;
mod attributes;
mod body;
mod bucket_tagging;
mod buckets;
mod checksums;
mod compat;
mod conditions;
mod copy_object;
mod delete_object;
mod delete_objects;
mod errors;
mod expiration;
mod get_object;
mod grants;
mod host;
mod lifecycle;
mod list_objects;
mod multipart;
mod names;
mod object_attributes;
mod object_tagging;
pub(crate) mod operations;
mod owner;
mod put_object;
mod refusal;
mod reserved_share;
mod s3_handler;
mod service;
mod tags;
mod times;
mod tokens;
mod unsupported;
mod url_encoding;

pub use access::{ALL_BUCKETS, Access, AccessKey, Keys, SharedKeys};
pub use service::{Service, ServiceOptions, service};
