//! Requests to the admin API: one at a time, each with the token and a time limit.

use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::{Client, Token};
use crate::cli::Failure;

/// A run of a worker spends its budget before it answers.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(10);
/// How often long work is asked how far it has come.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The status of a request that was refused because of the state of what it is about.
const CONFLICT: u16 = 409;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Names of workers and backends pass as they are; anything else is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// One admin API.
pub struct Connection {
    authority: Authority,
    token: Token,
    runtime: tokio::runtime::Runtime,
}

impl Connection {
    /// The admin API that the command line names; nothing is sent yet.
    pub fn open(client: &Client) -> Result<Self, Failure> {
        let token = client.token.clone().ok_or_else(|| {
            Failure::Usage("the admin token is needed: give --token or set S3O_ADMIN_TOKEN".to_owned())
        })?;
        let authority = authority(&client.admin)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { authority, token, runtime: runtime.map_err(|error| Failure::of("cannot start", error))? })
    }

    /// Asks for something.
    pub fn get(&self, path: &[&str]) -> Result<Value, Failure> {
        self.get_where(path, &[])
    }

    /// Has something done.
    pub fn post(&self, path: &[&str]) -> Result<Value, Failure> {
        self.post_where(path, &[])
    }

    /// Asks for something that a query tells more of.
    pub fn get_where(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Failure> {
        self.runtime.block_on(self.ask(Method::GET, self.uri(path, query)))
    }

    /// Has something done that a query tells more of.
    pub fn post_where(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Failure> {
        self.runtime.block_on(self.ask(Method::POST, self.uri(path, query)))
    }

    /// Has something done that may take long, and asks every now and then how far it has come. It may
    /// take as long as it likes while that is answered.
    pub fn post_watched(&self, path: &[&str], query: &[(&str, &str)], tell: impl Fn(&Value)) -> Result<Value, Failure> {
        self.runtime.block_on(async {
            let mut work = std::pin::pin!(self.send(Method::POST, self.uri(path, query)));
            loop {
                tokio::select! {
                    answer = &mut work => return answer,
                    () = tokio::time::sleep(WATCH_INTERVAL) => {
                        tell(&self.ask(Method::GET, self.uri(path, &[])).await?);
                    }
                }
            }
        })
    }

    /// Has something done; says whether it was, or what the answer was where a conflict kept it from being done.
    pub fn post_or_conflict(&self, path: &[&str], query: &[(&str, &str)]) -> Result<(bool, Value), Failure> {
        self.runtime.block_on(async {
            let uri = self.uri(path, query);
            match tokio::time::timeout(ANSWER_TIME_MAX, self.exchange(Method::POST, uri)).await {
                Ok(Ok((CONFLICT, Some(answer)))) => Ok((false, answer)),
                Ok(exchanged) => exchanged.and_then(|answer| self.answer(answer)).map(|answer| (true, answer)),
                Err(_) => Err(Failure::of(&format!("http://{}", self.authority), "no answer in time")),
            }
        })
    }

    async fn ask(&self, method: Method, uri: String) -> Result<Value, Failure> {
        let late = |_| Failure::of(&format!("http://{}", self.authority), "no answer in time");
        tokio::time::timeout(ANSWER_TIME_MAX, self.send(method, uri)).await.map_err(late)?
    }

    async fn send(&self, method: Method, uri: String) -> Result<Value, Failure> {
        self.answer(self.exchange(method, uri).await?)
    }

    /// The status of an answer, and its JSON where it is some.
    async fn exchange(&self, method: Method, uri: String) -> Result<(u16, Option<Value>), Failure> {
        let lost = |why: &dyn std::fmt::Display| Failure::of(&format!("http://{}", self.authority), why);
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("authorization", self.token.bearer())
            .body(Full::<Bytes>::default())
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let pool: Pool<_, Full<Bytes>> = Pool::builder(TokioExecutor::new()).build_http();
        let answer = pool.request(request).await.map_err(|error| lost(&with_causes(&error)))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| lost(&error))?;
        Ok((parts.status.as_u16(), serde_json::from_slice(&body.to_bytes()).ok()))
    }

    fn answer(&self, (status, value): (u16, Option<Value>)) -> Result<Value, Failure> {
        match value {
            Some(value) if (200..300).contains(&status) => Ok(value),
            Some(value) if value["error"]["message"].is_string() => {
                Err(Failure::Failed(value["error"]["message"].as_str().unwrap_or_default().to_owned()))
            }
            Some(_) | None => {
                let why = format!("answered {status}, which is not the admin API");
                Err(Failure::of(&format!("http://{}", self.authority), why))
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

fn authority(url: &str) -> Result<Authority, Failure> {
    let fault = |why: &str| Failure::Usage(format!("{url:?} is not the URL of an admin API: {why}"));
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| fault("not a URL"))?;
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err(fault("it starts with http://"));
    }
    uri.authority().cloned().ok_or_else(|| fault("it names no host"))
}

/// The client says what failed and keeps why to the cause.
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
    fn an_admin_url_is_http_and_names_a_host() {
        assert_eq!(authority("http://127.0.0.1:9001/").expect("valid"), "127.0.0.1:9001");
        for url in ["", "127.0.0.1:9001", "https://host", "ftp://host", "http://"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }
}
