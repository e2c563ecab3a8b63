//! Entries of `buckets` and `backends`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use s3o_backend::s3::{PUT_BYTES_MAX, S3Options, Secret};
use s3o_model::bucket::BucketSettings;
use s3o_model::names::{BackendName, BucketName};

use super::read::Section;
use super::sections::{flag, not_empty};
use super::{BackendConfig, BackendKind, units, usage};

/// `factor` is the one of buckets without `replication_factor`.
pub(super) fn bucket(section: Section<'_>, factor: usize) -> Option<(BucketName, BucketSettings)> {
    let name = section.required("name", |text| text.parse().map_err(|e: s3o_model::names::InvalidName| e.to_string()));
    let dedup = section.read("dedup", flag).unwrap_or(false);
    section.not_built(&["small_objects"]);
    let factor = section.count("replication_factor", factor);
    let default_ttl = section.read("default_ttl", time_to_live);
    section.finish();
    Some((name?, BucketSettings { dedup, default_ttl, factor }))
}

fn time_to_live(text: &str) -> Result<Duration, String> {
    let live = units::duration(text)?;
    if live.is_zero() { Err(format!("{text} is not allowed, use 1ms or more")) } else { Ok(live) }
}

pub(super) fn backend(section: Section<'_>, data: &Path) -> Option<BackendConfig> {
    let name = section.required("name", |text| text.parse::<BackendName>().map_err(|error| error.to_string()));
    let quota_bytes = section.read("quota", units::size);
    let object_bytes_max = section.read("max_object_size", size_above_zero);
    let usage_limits = usage::limits(&section);
    let kind = section.required("kind", |text| match text {
        "fs" | "s3" => Ok(text.to_owned()),
        other => Err(format!("{other:?} is not one of fs, s3")),
    });
    let kind = match kind.as_deref() {
        Some("fs") => {
            let default = name.as_ref().map(|name| data.join(name.as_str()));
            let root = section.read("root", not_empty).map(PathBuf::from).or(default);
            root.map(|root| BackendKind::Fs { root })
        }
        Some(_) => s3_options(&section).map(|options| BackendKind::S3(Box::new(options))),
        None => return None,
    };
    section.finish();
    Some(BackendConfig { name: name?, quota_bytes, object_bytes_max, usage_limits, kind: kind? })
}

fn size_above_zero(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        0 => Err(format!("{text} is not allowed, use 1B or more")),
        bytes => Ok(bytes),
    }
}

fn s3_options(section: &Section<'_>) -> Option<S3Options> {
    let endpoint = section.required("endpoint", |text| match text.split_once("://") {
        Some(("http" | "https", host)) if !host.is_empty() => Ok(text.trim_end_matches('/').to_owned()),
        // The value may hold a password.
        Some(_) | None => Err("is not a URL such as https://s3.example.com".to_owned()),
    });
    let region = section.text("region").unwrap_or_else(|| "us-east-1".to_owned());
    let bucket = section.required("bucket", not_empty);
    let access_key_id = section.required("access_key_id", not_empty);
    let secret = section.required("secret_access_key", not_empty);
    let path_style = section.read("path_style", flag).unwrap_or(true);
    let put_bytes_max = section.read("put_bytes_max", units::size).unwrap_or(PUT_BYTES_MAX);
    let create_bucket = section.read("create_bucket", flag).unwrap_or(false);
    Some(S3Options {
        endpoint: endpoint?,
        region,
        bucket: bucket?,
        access_key_id: access_key_id?,
        secret_access_key: Secret::new(secret?),
        path_style,
        put_bytes_max,
        create_bucket,
    })
}
