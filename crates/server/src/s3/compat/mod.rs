//! Work-arounds for the protocol library (`s3s`). Nothing outside this folder compensates for its behaviour.
//!
//! | module | the library ... |
//! |---|---|
//! | [`precheck`] | reads POST forms before it verifies the signature, takes any algorithm for version 4 |
//! | [`signing_dates`] | knows only `x-amz-date`, and computes with characters of a date that are no digits |
//! | [`credential_scope`] | accepts signatures for any region, and for `sts`, whose body it reads unverified |
//! | [`signed_headers`] | accepts `x-amz-*` headers that are not signed and presigned URLs of any lifetime |
//! | [`query_headers`] | ignores headers that a presigned URL carries as query parameters |
//! | [`header_compat`] | refuses reads with ranges and dates that S3 ignores |
//! | [`framing`] | buffers each `aws-chunked` chunk whole, accepts a body that ends before its last chunk |
//! | [`trailers`] | keeps the last of several trailers with one name |
//! | [`xml_body`] | parses the digests of XML documents without verifying them |
//! | [`xml_document`] | skips unexpected text, attributes and elements of XML documents |
//! | [`inputs`] | leaves input fields out, unsplit or unchecked, and hides the types of body errors |
//! | [`responses`] | writes error documents without resource and request ID, answers ranged HEAD requests with 200 |
//! | [`xml_text`] | writes characters that XML cannot represent, quotes the `ETag` of `GetObjectAttributes` |

pub mod credential_scope;
mod error_body;
pub mod framing;
pub mod header_compat;
pub mod inputs;
pub mod precheck;
pub mod query_headers;
pub mod responses;
pub mod signed_headers;
pub mod signing_dates;
mod trailers;
pub mod xml_body;
mod xml_document;
mod xml_text;
