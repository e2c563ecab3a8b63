//! The S3 door: translates requests for the engine and its answers back.
//!
//! The protocol library parses and signs; its types stop in this folder. Each operation family has
//! its file, thin: translate the input, call the engine, translate the output.

mod access;
mod acl;
mod attributes;
mod body;
mod bucket_tagging;
mod buckets;
mod checksums;
mod conditions;
mod copy_object;
mod credential_scope;
mod delete_object;
mod delete_objects;
mod door;
mod error_body;
mod errors;
mod expiration;
mod framing;
mod gate;
mod get_object;
mod grants;
mod host;
mod leniency;
mod lifecycle;
mod list_objects;
mod multipart;
mod names;
mod object_attributes;
mod object_tagging;
mod owner;
mod put_object;
mod query_headers;
mod refusal;
mod reserved_share;
mod service;
mod signed_headers;
mod signing_dates;
mod subresources;
mod tags;
mod times;
mod tokens;
mod trailers;
mod unsupported;
mod url_encoding;
mod xml_body;
mod xml_document;
mod xml_text;

pub use access::{ALL_BUCKETS, Access, AccessKey, Keys, SharedKeys};
pub use service::{S3Options, Service, service};
