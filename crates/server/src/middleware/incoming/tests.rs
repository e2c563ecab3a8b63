//! Tests of request bodies that stall, end early or stay unread.

use super::{ConnectionFate, IDLE_MAX, STALLED, UnreadBody, WatchedBody};
use crate::middleware::{RequestContext, Transfer};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http::request::Parts;
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

type Piece = Result<Frame<Bytes>, Infallible>;

fn parts() -> Parts {
    Request::put("/b/k").body(()).unwrap().into_parts().0
}

fn context() -> RequestContext {
    RequestContext::new("id".into())
}

fn watch<B: Body>(parts: &Parts, body: B, context: &RequestContext) -> (WatchedBody<B>, UnreadBody<B>) {
    super::watch(parts, body, context, &Transfer::new(None)).expect("a request with a body")
}

#[expect(clippy::unnecessary_wraps, reason = "streams of bodies take results")]
fn piece(length: usize) -> Piece {
    Ok(Frame::data(Bytes::from(vec![0; length])))
}

/// Sends single-byte pieces, then nothing more, without ending.
fn then_stall(pieces: usize, pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let arriving = stream::iter(0..pieces).then(move |_| async move {
        tokio::time::sleep(pause).await;
        piece(1)
    });
    StreamBody::new(Box::pin(arriving.chain(stream::pending())))
}

#[tokio::test(start_paused = true)]
async fn stalled_body_fails() {
    let context = context();
    let began = Instant::now();
    let (body, rest) = watch(&parts(), then_stall(3, IDLE_MAX / 2), &context);
    assert!(body.collect().await.is_err());
    assert_eq!(began.elapsed(), IDLE_MAX / 2 * 3 + IDLE_MAX);
    assert_eq!(context.body_fault(), Some(STALLED));
    assert_eq!(rest.settle().await, ConnectionFate::Closes);
    assert_eq!(began.elapsed(), IDLE_MAX / 2 * 3 + IDLE_MAX, "the timeout does not run again");
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_does_not_run_while_the_body_is_not_read() {
    let context = context();
    let (mut body, _rest) = watch(&parts(), then_stall(2, IDLE_MAX / 2), &context);
    for _ in 0..2 {
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(IDLE_MAX * 2).await;
    }
    assert_eq!(context.body_fault(), None);
}

#[tokio::test]
async fn connection_stays_open_after_a_body_was_read() {
    let (body, rest) = watch(&parts(), Full::new(Bytes::from_static(b"body")), &context());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "body");
    assert_eq!(rest.settle().await, ConnectionFate::Stays);
}

#[tokio::test]
async fn small_rest_is_discarded() {
    let (body, rest) = watch(&parts(), StreamBody::new(stream::iter([piece(5), piece(100_000)])), &context());
    drop(body);
    assert_eq!(rest.settle().await, ConnectionFate::Stays);
}

#[tokio::test]
async fn large_rest_closes_the_connection() {
    let (body, rest) = watch(&parts(), Full::new(Bytes::from(vec![0; 300_000])), &context());
    drop(body);
    assert_eq!(rest.settle().await, ConnectionFate::Closes);
    let pieces = stream::iter((0..10).map(|_| piece(100_000)));
    let (body, rest) = watch(&parts(), StreamBody::new(pieces), &context());
    drop(body);
    assert_eq!(rest.settle().await, ConnectionFate::Closes);
}

#[tokio::test(start_paused = true)]
async fn stalled_rest_closes_the_connection() {
    let (body, rest) = watch(&parts(), then_stall(1, Duration::ZERO), &context());
    drop(body);
    let began = Instant::now();
    assert_eq!(rest.settle().await, ConnectionFate::Closes);
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn abandoned_body_does_not_delay_the_response() {
    let (body, rest) = watch(&parts(), then_stall(1, Duration::ZERO), &context());
    drop(body);
    let began = Instant::now();
    assert_eq!(rest.abandon(), ConnectionFate::Closes);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let (body, rest) = watch(&parts(), Full::new(Bytes::from_static(b"body")), &context());
    body.collect().await.unwrap();
    assert_eq!(rest.abandon(), ConnectionFate::Stays);
}

#[test]
fn request_without_a_body_is_not_watched() {
    let transfer = Transfer::new(None);
    assert!(super::watch(&parts(), Full::new(Bytes::new()), &context(), &transfer).is_none());
}

#[tokio::test]
async fn rest_is_not_read_from_a_client_that_expects_continue() {
    let expecting = Request::put("/b/k").header("expect", "100-continue").body(()).unwrap().into_parts().0;
    let never = StreamBody::new(stream::poll_fn(|_| -> std::task::Poll<Option<Piece>> { panic!("asked") }));
    let (body, rest) = watch(&expecting, never, &context());
    drop(body);
    assert_eq!(rest.settle().await, ConnectionFate::Closes);
}
