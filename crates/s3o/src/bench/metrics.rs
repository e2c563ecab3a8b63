//! What an s3o under load tells of itself: its page of metrics, and its admin API beside it.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use crate::client::Token;

const PAGE_BYTES_MAX: usize = 16 << 20;

/// A page of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page(String);

impl Page {
    /// Reads a page.
    pub async fn read(url: &str) -> Result<Self, String> {
        ask(Method::GET, url, None).await.map(Self)
    }

    /// The sum of all samples of this name.
    pub fn sum(&self, name: &str) -> Result<u64, String> {
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let samples = self.0.lines().filter(of_name).map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        let samples: Option<Vec<_>> = samples.collect();
        match samples.as_deref() {
            None | Some([]) => Err(format!("does not tell {name}")),
            Some(numbers) => Ok(numbers.iter().sum()),
        }
    }
}

/// The admin API beside a page of metrics.
#[derive(Debug, Clone)]
pub struct Admin {
    url: String,
    token: Token,
}

impl Admin {
    /// The API of the server whose page of metrics this is.
    pub fn beside(page: &str, token: &Token) -> Self {
        Self { url: format!("{}/admin/api", page.trim_end_matches("/metrics")), token: token.clone() }
    }

    /// Lets the worker that empties the queue rest, or go on.
    pub async fn steer_cleanup(&self, verb: &str) -> Result<(), String> {
        let url = format!("{}/workers/cleanup/{verb}", self.url);
        ask(Method::POST, &url, Some(&self.token)).await.map(drop)
    }

    /// How long the server takes to say how it is.
    pub async fn time_status(&self) -> Result<Duration, String> {
        let began = Instant::now();
        ask(Method::GET, &format!("{}/status", self.url), Some(&self.token)).await?;
        Ok(began.elapsed())
    }
}

async fn ask(method: Method, url: &str, token: Option<&Token>) -> Result<String, String> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header("authorization", token.bearer());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
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
    use super::{Admin, Page};
    use crate::client::Token;

    #[test]
    fn samples_of_one_name_are_summed_up() {
        let page = "# TYPE s3o_catalog_commits counter\ns3o_catalog_commits_total 42\ns3o_calls_total{a=\"x y\"} 7\n\
            s3o_calls_total{a=\"z\"} 5\ns3o_calls_total_more 1\n";
        let page = Page(page.to_owned());
        assert_eq!(page.sum("s3o_catalog_commits_total"), Ok(42));
        assert_eq!(page.sum("s3o_calls_total"), Ok(12));
        assert!(page.sum("s3o_calls").is_err());
    }

    #[test]
    fn the_admin_api_is_beside_the_metrics() {
        let admin = Admin::beside("http://host:1/metrics", &Token::from("secret".to_owned()));
        assert_eq!(admin.url, "http://host:1/admin/api");
    }
}
