//! Effects of faults on the caller and on the wrapped backend.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::Fault;
use crate::{BodyError, ByteStream, DeleteAnswer, Error, body};

pub(super) fn call_lost() -> Error {
    Error::Away("injected: the call never arrived".to_owned())
}

pub(super) fn response_lost() -> Error {
    Error::Unknown("injected: the answer was lost".to_owned())
}

/// The error of a call that must not reach the store; `None` if it must reach it.
pub(super) fn without_effect(fault: Fault) -> Option<Error> {
    match fault {
        Fault::Before | Fault::Hang(_) => Some(call_lost()),
        Fault::Refused => Some(Error::Refused("injected: rejected".to_owned())),
        Fault::Unknown | Fault::Late(_) => Some(response_lost()),
        Fault::After
        | Fault::Delay(_)
        | Fault::Stall(_)
        | Fault::Cut(_)
        | Fault::Pause(..)
        | Fault::PartialBatch
        | Fault::Wrong404
        | Fault::ShortPage
        | Fault::NoSpace(_) => None,
    }
}

/// The answer for a key of a delete that did not reach the store.
pub(super) fn delete_answer(error: &Error) -> DeleteAnswer {
    match error {
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Unknown(why) => DeleteAnswer::Unknown(why.clone()),
        other => DeleteAnswer::Away(other.to_string()),
    }
}

/// Interrupts a body after this many bytes.
pub(super) fn cut(body: ByteStream, after_bytes: u64) -> ByteStream {
    let start = (Some(body), after_bytes);
    Box::pin(stream::unfold(start, |(body, left)| async move {
        let mut body = body?;
        if left == 0 {
            return Some((Err(BodyError::Broken("injected: the stream was cut".to_owned())), (None, 0)));
        }
        let item = body.next().await?;
        let item = item.map(|chunk| {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            chunk.slice(..length)
        });
        let passed = item.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Some((item, (Some(body), left - passed)))
    }))
}

/// Stops a body after this many bytes, and interrupts it after a delay.
pub(super) fn pause(body: ByteStream, after_bytes: u64, delay: Duration) -> ByteStream {
    Box::pin(cut(body, after_bytes).then(move |item| async move {
        if item.is_err() {
            tokio::time::sleep(delay).await;
        }
        item
    }))
}

/// Reads this many bytes of a body, then fails.
pub(super) async fn no_space(mut body: ByteStream, after_bytes: u64) -> Error {
    let mut taken = 0;
    while taken < after_bytes {
        match body.next().await {
            Some(Ok(chunk)) => taken += chunk.len() as u64,
            Some(Err(error)) => return error.into(),
            None => break,
        }
    }
    Error::NoSpace("injected: no space left".to_owned())
}

/// Interrupts a request body if the fault is `Cut`.
pub(super) fn cut_request(fault: Option<Fault>, body: ByteStream) -> ByteStream {
    if let Some(Fault::Cut(after_bytes)) = fault { cut(body, after_bytes) } else { body }
}

/// Collects a request body and then waits, if the fault is `Stall`.
pub(super) async fn stall(fault: Option<Fault>, body: ByteStream, size_bytes: u64) -> Result<ByteStream, Error> {
    let Some(Fault::Stall(delay)) = fault else { return Ok(body) };
    let bytes = body::collect(body, size_bytes).await?;
    tokio::time::sleep(delay).await;
    Ok(body::whole(bytes))
}

/// Replaces the answer of the store if the fault changes it.
pub(super) fn answer_with_fault<T>(fault: Option<Fault>, answer: Result<T, Error>) -> Result<T, Error> {
    match (fault, answer) {
        (Some(Fault::After), _) => Err(response_lost()),
        // The fault interrupts the connection to the store; the producer did nothing wrong.
        (Some(Fault::Cut(_)), Err(Error::Body(_))) => Err(Error::Away("injected: the connection broke".to_owned())),
        (_, answer) => answer,
    }
}
