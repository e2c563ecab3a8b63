//! `s3o rm` and `s3o restore`.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::arguments::AdminOptions;
use super::connection::AdminConnection;
use super::table::{bytes, cell};
use crate::cli::CommandFailure;

/// `s3o rm`.
#[derive(Debug, Args)]
pub struct RmCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    /// Delete all objects whose keys start with the prefix; without it the command is refused
    #[arg(long, short)]
    recursive: bool,
    /// Empty the trash of the prefix and touch no object
    #[arg(long)]
    purge: bool,
    /// Bucket and prefix; `BUCKET/` means all objects of the bucket
    #[arg(value_name = "BUCKET/PREFIX")]
    target: String,
}

/// `s3o restore`.
#[derive(Debug, Args)]
pub struct RestoreCommand {
    #[command(flatten)]
    pub(super) client: AdminOptions,
    /// Bucket and prefix; `BUCKET/` means everything in the trash of the bucket
    #[arg(value_name = "BUCKET/PREFIX")]
    target: String,
}

/// Deletes the objects of a prefix to trash, or empties the trash of the prefix.
pub fn rm(connection: &AdminConnection, command: &RmCommand) -> Result<(), CommandFailure> {
    if !command.recursive {
        let why = "s3o rm deletes all objects of a prefix: add --recursive; to delete one object, use an S3 client";
        return Err(CommandFailure::Usage(why.to_owned()));
    }
    let (bucket, prefix) = bucket_and_prefix(&command.target)?;
    let mut query = vec![("bucket", bucket), ("prefix", prefix)];
    if command.purge {
        query.push(("purge", "true"));
    }
    let path: &[&str] = &["objects"];
    let answer = connection.run_with_progress((Method::DELETE, path), &query, &["trash"], print_progress)?;
    print(&answer, command.client.json);
    Ok(())
}

/// Restores the newest version of each key of a prefix from trash.
pub fn restore(connection: &AdminConnection, command: &RestoreCommand) -> Result<(), CommandFailure> {
    let (bucket, prefix) = bucket_and_prefix(&command.target)?;
    let query = [("bucket", bucket), ("prefix", prefix)];
    let path: &[&str] = &["objects", "restore"];
    let answer = connection.run_with_progress((Method::POST, path), &query, &["trash"], print_progress)?;
    print(&answer, command.client.json);
    Ok(())
}

/// `BUCKET/` means the whole bucket. `BUCKET` alone is refused: the prefix may have been forgotten.
fn bucket_and_prefix(target: &str) -> Result<(&str, &str), CommandFailure> {
    target.split_once('/').filter(|(bucket, _)| !bucket.is_empty()).ok_or_else(|| {
        let why = format!("{target:?} is not BUCKET/PREFIX, or BUCKET/ for all objects of a bucket");
        CommandFailure::Usage(why)
    })
}

fn print_progress(progress: &Value) {
    for running in progress["items"].as_array().into_iter().flatten() {
        let [kind, bucket, prefix, objects] =
            ["kind", "bucket", "prefix", "objects"].map(|field| cell(&running[field]));
        eprintln!("{kind} of {bucket}/{prefix}: {objects} objects");
    }
}

fn print(answer: &Value, json: bool) {
    if json {
        println!("{answer}");
    } else {
        print!("{}", render(answer));
    }
}

fn render(answer: &Value) -> String {
    let (objects, held) = (cell(&answer["objects"]), bytes(&answer["bytes"]));
    match answer["kind"].as_str() {
        Some("restore") => {
            let skipped = [("existing", "the key has an object"), ("expired", "the newest version has expired")];
            let skipped = skipped.into_iter().filter(|(field, _)| answer[field] != 0);
            let skipped = skipped.map(|(field, why)| format!("not restored: {} keys, {why}\n", answer[field]));
            format!("restored {objects} objects, {held}\n{}", skipped.collect::<Vec<_>>().concat())
        }
        Some("purge") => format!("purged {objects} objects from trash, {held}\n"),
        Some(_) | None => format!(
            "moved {objects} objects to trash, {held}\nto undo this: s3o restore {}/{}\n",
            cell(&answer["bucket"]),
            answer["prefix"].as_str().unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{bucket_and_prefix, render};
    use serde_json::json;

    #[test]
    fn whole_bucket_needs_a_trailing_slash() {
        assert_eq!(bucket_and_prefix("photos/").expect("valid"), ("photos", ""));
        assert_eq!(bucket_and_prefix("photos/a/b").expect("valid"), ("photos", "a/b"));
        for wrong in ["photos", "", "/a"] {
            assert!(bucket_and_prefix(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_name_what_was_skipped() {
        let moved = json!({"kind": "rm", "bucket": "photos", "prefix": "a/", "objects": 2, "bytes": 2048});
        assert_eq!(render(&moved), "moved 2 objects to trash, 2.0 KiB\nto undo this: s3o restore photos/a/\n");
        let restored = json!({"kind": "restore", "objects": 1, "bytes": 0, "existing": 3, "expired": 0});
        assert_eq!(render(&restored), "restored 1 objects, 0 B\nnot restored: 3 keys, the key has an object\n");
        let purged = json!({"kind": "purge", "objects": 1, "bytes": 2048});
        assert_eq!(render(&purged), "purged 1 objects from trash, 2.0 KiB\n");
    }
}
