//! Reads the metrics of an s3o server and calls its admin API.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use s3o_backend::s3::Secret;

const PAGE_BYTES_MAX: usize = 16 << 20;

/// Metrics in Prometheus text format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsText(String);

impl MetricsText {
    /// Fetches the metrics.
    pub async fn read(url: &str) -> Result<Self, String> {
        request(Method::GET, url, None).await.map(Self)
    }

    /// The sum of all samples of a metric; fails if there is none.
    pub fn sum(&self, name: &str) -> Result<u64, String> {
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let samples = self.0.lines().filter(of_name).map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        let samples: Option<Vec<_>> = samples.collect();
        match samples.as_deref() {
            None | Some([]) => Err(format!("has no metric {name}")),
            Some(numbers) => Ok(numbers.iter().sum()),
        }
    }
}

/// The admin API of a server.
#[derive(Debug, Clone)]
pub struct AdminApi {
    url: String,
    token: Secret,
}

impl AdminApi {
    /// The admin API of the server with this metrics URL.
    pub fn of_metrics_url(url: &str, token: &Secret) -> Self {
        Self { url: format!("{}/admin/api", url.trim_end_matches("/metrics")), token: token.clone() }
    }

    /// Pauses or resumes the cleanup worker; `verb` is `pause` or `resume`.
    pub async fn control_cleanup(&self, verb: &str) -> Result<(), String> {
        let url = format!("{}/workers/cleanup/{verb}", self.url);
        request(Method::POST, &url, Some(&self.token)).await.map(drop)
    }

    /// The latency of a status request.
    pub async fn time_status(&self) -> Result<Duration, String> {
        let began = Instant::now();
        request(Method::GET, &format!("{}/status", self.url), Some(&self.token)).await?;
        Ok(began.elapsed())
    }
}

async fn request(method: Method, url: &str, token: Option<&Secret>) -> Result<String, String> {
    let mut builder = Request::builder().method(method).uri(url);
    if let Some(token) = token {
        builder = builder.header("authorization", format!("Bearer {}", token.reveal()));
    }
    let request = builder.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if status.is_success() {
        Ok(String::from_utf8_lossy(&body).into_owned())
    } else {
        Err(format!("{url} answered {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{AdminApi, MetricsText};
    use s3o_backend::s3::Secret;

    #[test]
    fn samples_of_one_metric_are_summed() {
        let page = "# TYPE s3o_catalog_commits counter\ns3o_catalog_commits_total 42\ns3o_calls_total{a=\"x y\"} 7\n\
            s3o_calls_total{a=\"z\"} 5\ns3o_calls_total_more 1\n";
        let page = MetricsText(page.to_owned());
        assert_eq!(page.sum("s3o_catalog_commits_total"), Ok(42));
        assert_eq!(page.sum("s3o_calls_total"), Ok(12));
        assert!(page.sum("s3o_calls").is_err());
    }

    #[test]
    fn admin_api_url_is_derived_from_the_metrics_url() {
        let admin = AdminApi::of_metrics_url("http://host:1/metrics", &Secret::new("secret"));
        assert_eq!(admin.url, "http://host:1/admin/api");
    }
}
