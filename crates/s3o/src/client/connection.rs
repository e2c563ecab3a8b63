//! HTTP client of the admin API: one request at a time, each with the token and a timeout.

use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::arguments::{AdminOptions, Token};
use crate::cli::CommandFailure;

/// Above the time budget of a worker run, which is answered at its end.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(10);
/// Interval of progress queries during a long request.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const CONFLICT: u16 = 409;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Names of workers and backends need no escape; all other characters are percent-encoded.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Address and token of one admin API.
pub struct AdminConnection {
    authority: Authority,
    token: Token,
    runtime: tokio::runtime::Runtime,
}

impl AdminConnection {
    /// Checks URL and token; sends nothing yet.
    pub fn open(client: &AdminOptions) -> Result<Self, CommandFailure> {
        let token = client.token.clone().ok_or_else(|| {
            CommandFailure::Usage("no admin token given, use --token or set S3O_ADMIN_TOKEN".to_owned())
        })?;
        let authority = authority(&client.admin)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { authority, token, runtime: runtime.map_err(|error| CommandFailure::of("cannot start", error))? })
    }

    /// GET without a query.
    pub fn get(&self, path: &[&str]) -> Result<Value, CommandFailure> {
        self.get_where(path, &[])
    }

    /// POST without a query.
    pub fn post(&self, path: &[&str]) -> Result<Value, CommandFailure> {
        self.post_where(path, &[])
    }

    /// DELETE without a query.
    pub fn delete(&self, path: &[&str]) -> Result<Value, CommandFailure> {
        self.delete_where(path, &[])
    }

    /// DELETE with a query.
    pub fn delete_where(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CommandFailure> {
        self.runtime.block_on(self.send_in_time(Method::DELETE, self.uri(path, query)))
    }

    /// GET with a query.
    pub fn get_where(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CommandFailure> {
        self.runtime.block_on(self.send_in_time(Method::GET, self.uri(path, query)))
    }

    /// POST with a query.
    pub fn post_where(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CommandFailure> {
        self.runtime.block_on(self.send_in_time(Method::POST, self.uri(path, query)))
    }

    /// POST without a timeout. Sends a GET of the same path at an interval and passes each answer to `report`; a GET
    /// without an answer in time fails the call.
    pub fn post_with_progress(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        report: impl Fn(&Value),
    ) -> Result<Value, CommandFailure> {
        self.run_with_progress((Method::POST, path), query, path, report)
    }

    /// The same for another method, with the progress at another path.
    pub fn run_with_progress(
        &self,
        (method, path): (Method, &[&str]),
        query: &[(&str, &str)],
        progress: &[&str],
        report: impl Fn(&Value),
    ) -> Result<Value, CommandFailure> {
        self.runtime.block_on(async {
            let mut work = std::pin::pin!(self.send(method, self.uri(path, query)));
            loop {
                tokio::select! {
                    answer = &mut work => return answer,
                    () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                        report(&self.send_in_time(Method::GET, self.uri(progress, &[])).await?);
                    }
                }
            }
        })
    }

    /// POST that may be refused with 409: false and the answer in that case.
    pub fn post_or_conflict(&self, path: &[&str], query: &[(&str, &str)]) -> Result<(bool, Value), CommandFailure> {
        self.runtime.block_on(async {
            let uri = self.uri(path, query);
            match tokio::time::timeout(ANSWER_TIME_MAX, self.exchange(Method::POST, uri)).await {
                Ok(Ok((CONFLICT, Some(answer)))) => Ok((false, answer)),
                Ok(exchanged) => exchanged.and_then(|answer| self.answer(answer)).map(|answer| (true, answer)),
                Err(_) => Err(self.timed_out()),
            }
        })
    }

    async fn send_in_time(&self, method: Method, uri: String) -> Result<Value, CommandFailure> {
        tokio::time::timeout(ANSWER_TIME_MAX, self.send(method, uri)).await.map_err(|_| self.timed_out())?
    }

    fn timed_out(&self) -> CommandFailure {
        let why = format!("no answer within {} s", ANSWER_TIME_MAX.as_secs());
        CommandFailure::of(&format!("http://{}", self.authority), why)
    }

    async fn send(&self, method: Method, uri: String) -> Result<Value, CommandFailure> {
        self.answer(self.exchange(method, uri).await?)
    }

    /// Status and JSON of an answer; `None` if the body is not JSON.
    async fn exchange(&self, method: Method, uri: String) -> Result<(u16, Option<Value>), CommandFailure> {
        let lost = |why: &dyn std::fmt::Display| CommandFailure::of(&format!("http://{}", self.authority), why);
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("authorization", self.token.bearer())
            .body(Full::<Bytes>::default())
            .map_err(|error| CommandFailure::Usage(error.to_string()))?;
        let pool: Pool<_, Full<Bytes>> = Pool::builder(TokioExecutor::new()).build_http();
        let answer = pool.request(request).await.map_err(|error| lost(&with_causes(&error)))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| lost(&error))?;
        Ok((parts.status.as_u16(), serde_json::from_slice(&body.to_bytes()).ok()))
    }

    fn answer(&self, (status, value): (u16, Option<Value>)) -> Result<Value, CommandFailure> {
        match value {
            Some(value) if (200..300).contains(&status) => Ok(value),
            Some(value) if value["error"]["message"].is_string() => {
                Err(CommandFailure::Failed(value["error"]["message"].as_str().unwrap_or_default().to_owned()))
            }
            Some(_) | None => {
                let why =
                    format!("answered {status} without a JSON message, so it is not the admin API, check --admin");
                Err(CommandFailure::of(&format!("http://{}", self.authority), why))
            }
        }
    }

    fn uri(&self, path: &[&str], query: &[(&str, &str)]) -> String {
        let mut uri = format!("http://{}/admin/api", self.authority);
        for word in path {
            uri.push('/');
            uri.extend(utf8_percent_encode(word, ESCAPED));
        }
        for (position, (name, value)) in query.iter().enumerate() {
            uri.push(if position == 0 { '?' } else { '&' });
            uri.push_str(name);
            uri.push('=');
            uri.extend(utf8_percent_encode(value, ESCAPED));
        }
        uri
    }
}

fn authority(url: &str) -> Result<Authority, CommandFailure> {
    let fault = |why: &str| CommandFailure::Usage(format!("{url:?} is not the URL of an admin API: {why}"));
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| fault("it is not a URL"))?;
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err(fault("it must start with http://"));
    }
    uri.authority().cloned().ok_or_else(|| fault("it has no host"))
}

/// An error with its causes, which the HTTP client does not include in its message.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn admin_url_needs_http_and_a_host() {
        assert_eq!(authority("http://127.0.0.1:9001/").expect("valid"), "127.0.0.1:9001");
        for url in ["", "127.0.0.1:9001", "https://host", "ftp://host", "http://"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }
}
