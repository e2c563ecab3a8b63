//! What an s3o under load tells of itself on its page of metrics.

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

const PAGE_BYTES_MAX: usize = 16 << 20;
const COMMITS: &str = "s3o_catalog_commits_total ";

/// How many transactions its catalog has committed.
pub async fn commits(page: &str) -> Result<u64, String> {
    let uri: Uri = page.parse().map_err(|_| "not a URL".to_owned())?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(uri).await.map_err(|error| error.to_string())?;
    let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    count(&String::from_utf8_lossy(&body)).ok_or_else(|| "tells no commits".to_owned())
}

fn count(page: &str) -> Option<u64> {
    page.lines().find_map(|line| line.strip_prefix(COMMITS))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_count_is_found_among_other_samples() {
        let page = "# TYPE s3o_catalog_commits counter\ns3o_catalog_commits_total 42\ns3o_other_total 7\n";
        assert_eq!(count(page), Some(42));
        assert_eq!(count("<html>"), None);
    }
}
