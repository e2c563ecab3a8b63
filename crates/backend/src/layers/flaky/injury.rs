//! How faults look to the caller and to the backend behind.

use futures_util::{StreamExt, stream};

use super::Fault;
use crate::{BodyError, ByteStream, DeleteAnswer, Error, body};

pub(super) fn injected() -> Error {
    Error::Away("injected: the call never arrived".to_owned())
}

pub(super) fn lost() -> Error {
    Error::Unknown("injected: the answer was lost".to_owned())
}

/// How a call fails that must not reach the store at all; `None` if it must.
pub(super) fn without_effect(fault: Fault) -> Option<Error> {
    match fault {
        Fault::Before | Fault::Hang(_) => Some(injected()),
        Fault::Refused => Some(Error::Refused("injected: not today".to_owned())),
        Fault::Unknown | Fault::Late(_) => Some(lost()),
        Fault::After
        | Fault::Delay(_)
        | Fault::Stall(_)
        | Fault::Cut(_)
        | Fault::PartialBatch
        | Fault::Wrong404
        | Fault::ShortPage
        | Fault::NoSpace(_) => None,
    }
}

/// The same for one key that was to be deleted.
pub(super) fn undone(error: &Error) -> DeleteAnswer {
    match error {
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Unknown(why) => DeleteAnswer::Unknown(why.clone()),
        other => DeleteAnswer::Away(other.to_string()),
    }
}

/// Lets this many bytes through and then breaks.
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

/// Reads this many bytes of a body, then reports a full store.
pub(super) async fn no_space(mut body: ByteStream, after_bytes: u64) -> Error {
    let mut taken = 0;
    while taken < after_bytes {
        match body.next().await {
            Some(Ok(chunk)) => taken += chunk.len() as u64,
            Some(Err(error)) => return error.into(),
            None => break,
        }
    }
    Error::NoRoom("injected: no space left".to_owned())
}

/// A body that the fault breaks on the way in, and what the caller is told of it.
pub(super) fn cut_in(fault: Option<Fault>, body: ByteStream) -> ByteStream {
    if let Some(Fault::Cut(after_bytes)) = fault { cut(body, after_bytes) } else { body }
}

/// A body that the store has taken to its end before a stall begins.
pub(super) async fn stalled(fault: Option<Fault>, body: ByteStream, size_bytes: u64) -> Result<ByteStream, Error> {
    let Some(Fault::Stall(delay)) = fault else { return Ok(body) };
    let bytes = body::collect(body, size_bytes).await?;
    tokio::time::sleep(delay).await;
    Ok(body::whole(bytes))
}

pub(super) fn told<T>(fault: Option<Fault>, answer: Result<T, Error>) -> Result<T, Error> {
    match (fault, answer) {
        (Some(Fault::After), _) => Err(lost()),
        // It was the connection that broke, not the producer.
        (Some(Fault::Cut(_)), Err(Error::Body(_))) => Err(Error::Away("injected: the connection broke".to_owned())),
        (_, answer) => answer,
    }
}
