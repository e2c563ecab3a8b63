//! What a service does, found out with a canary under `.s3o/probe/`.

use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use s3o_model::physical_key::{NameStyle, RESERVED_PREFIX};
use time::OffsetDateTime;
use time::macros::format_description;

use super::S3;
use super::list::Order;
use super::objects::version_id;
use super::transport::{Answer, Payload, Request, etag, header_text};
use super::xml::Element;
use crate::hex::hex;
use crate::{DeleteAnswer, Doomed, Error, Probe, Traits};

impl S3 {
    pub(super) async fn find_traits(&self) -> Result<Traits, Error> {
        let mut canaries = Vec::new();
        let found = self.try_out(&mut canaries).await;
        let removed = self.remove_canaries(canaries).await;
        found.and_then(|traits| removed.map(|()| traits))
    }

    /// Finds out in which order keys are listed.
    pub(super) async fn find_order(&self) -> Result<Order, Error> {
        let mut canaries = Vec::new();
        let found = self.try_order(&self.stem(), &mut canaries).await;
        let removed = self.remove_canaries(canaries).await;
        found.and_then(|order| removed.map(|()| order))
    }

    fn stem(&self) -> String {
        format!("{RESERVED_PREFIX}probe/{:016x}", self.entropy.next_u64())
    }

    async fn try_out(&self, canaries: &mut Vec<Doomed>) -> Result<Traits, Error> {
        let stem = self.stem();
        let body = Bytes::from(format!("s3o canary {:016x}", self.entropy.next_u64()));
        let digest = hex(&Md5::digest(&body));
        let written = self.write_canary(format!("{stem}A"), body, canaries).await?;
        let keeps_versions = version_id(&written.headers).is_some() || self.versioning_is_on().await;
        if keeps_versions {
            self.found_versions();
        }
        self.try_order(&stem, canaries).await?;
        let folded = matches!(self.probe_object(&format!("{stem}a")).await, Probe::Present(_));
        Ok(Traits {
            name_style: if folded { NameStyle::Folded } else { NameStyle::Exact },
            etag_is_md5: etag(&written.headers).as_deref() == Some(digest.as_str()),
            keeps_versions,
            clock_skew_ms: self.clock_skew_ms(&written),
        })
    }

    /// A canary is noted even if its answer was lost, so that it goes in any case.
    async fn write_canary(&self, key: String, body: Bytes, canaries: &mut Vec<Doomed>) -> Result<Answer, Error> {
        let request = Request::new(Method::PUT, Some(&key), &[]).carrying(Payload::Known(body));
        let answer = self.transport.answer(request).await;
        let version_id = answer.as_ref().ok().and_then(|answer| version_id(&answer.headers));
        canaries.push(Doomed { key, version_id });
        Ok(answer?)
    }

    /// `a-b` sorts before `a/b`, unless a store keeps folders and sorts them by their names.
    async fn try_order(&self, stem: &str, canaries: &mut Vec<Doomed>) -> Result<Order, Error> {
        let folder = format!("{stem}-order/");
        for name in ["a/b", "a-b"] {
            self.write_canary(format!("{folder}{name}"), Bytes::from("s3o"), canaries).await?;
        }
        self.order_in(&folder).await
    }

    /// One that cannot be removed keeps no other from going.
    async fn remove_canaries(&self, canaries: Vec<Doomed>) -> Result<(), Error> {
        let mut removed = Ok(());
        for canary in canaries {
            removed = removed.and(self.remove_canary(canary).await);
        }
        removed
    }

    /// A service that does not know the question keeps no versions.
    async fn versioning_is_on(&self) -> bool {
        let answer = self.transport.answer(Request::new(Method::GET, None, &[("versioning", "")])).await;
        let root = answer.ok().and_then(|answer| Element::parse(&answer.body).ok());
        root.is_some_and(|root| matches!(root.child_text("Status"), Some("Enabled" | "Suspended")))
    }

    async fn remove_canary(&self, canary: Doomed) -> Result<(), Error> {
        let answer = self.delete_objects(std::slice::from_ref(&canary)).await.pop();
        match answer {
            Some(DeleteAnswer::Deleted | DeleteAnswer::Absent) => {}
            Some(DeleteAnswer::Away(why)) => return Err(Error::Away(why)),
            other => return Err(Error::Refused(format!("the canary could not be deleted: {other:?}"))),
        }
        match self.probe_object(&canary.key).await {
            Probe::Absent => Ok(()),
            Probe::Present(_) => Err(Error::Refused("the canary is not gone after its delete".to_owned())),
            Probe::Unknown(why) => Err(Error::Unknown(why)),
        }
    }

    /// The service tells whole seconds, so anything below one is no skew.
    fn clock_skew_ms(&self, answer: &Answer) -> Option<i64> {
        let theirs = parse_date(header_text(&answer.headers, "date")?)?;
        Some((theirs - self.transport.clock().now().seconds()) * 1000)
    }
}

/// The moment of `Fri, 24 May 2013 00:00:00 GMT`, in seconds since the epoch.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    let form =
        format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
    let moment = time::PrimitiveDateTime::parse(text, form).ok()?;
    Some(moment.assume_utc().unix_timestamp()).filter(|seconds| *seconds > OffsetDateTime::UNIX_EPOCH.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::parse_date;

    #[test]
    fn dates_of_answers_are_read() {
        assert_eq!(parse_date("Fri, 24 May 2013 00:00:00 GMT"), Some(1_369_353_600));
        assert_eq!(parse_date("yesterday"), None);
    }
}
