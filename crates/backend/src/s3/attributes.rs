//! Probes the traits of a service with objects under `.s3o/probe/`.

use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use s3o_model::physical_key::{NameStyle, RESERVED_PREFIX};
use time::OffsetDateTime;
use time::macros::format_description;

use super::S3;
use super::list::ListOrder;
use super::objects::version_id;
use super::transport::{Payload, S3Request, SuccessResponse, etag, header_text};
use super::xml::XmlElement;
use crate::{DeleteAnswer, DeleteKey, Error, Probe, Traits};
use s3o_model::etag::hex;

impl S3 {
    pub(super) async fn probe_all_traits(&self) -> Result<Traits, Error> {
        let mut probes = Vec::new();
        let found = self.write_and_probe(&mut probes).await;
        let removed = self.delete_probes(probes).await;
        found.and_then(|traits| removed.map(|()| traits))
    }

    /// Probes the order in which the service lists keys.
    pub(super) async fn probe_order(&self) -> Result<ListOrder, Error> {
        let mut probes = Vec::new();
        let found = self.probe_order_below(&self.stem(), &mut probes).await;
        let removed = self.delete_probes(probes).await;
        found.and_then(|order| removed.map(|()| order))
    }

    fn stem(&self) -> String {
        format!("{RESERVED_PREFIX}probe/{:016x}", self.entropy.next_u64())
    }

    async fn write_and_probe(&self, probes: &mut Vec<DeleteKey>) -> Result<Traits, Error> {
        let stem = self.stem();
        let body = Bytes::from(format!("s3o probe {:016x}", self.entropy.next_u64()));
        let digest = hex(&Md5::digest(&body));
        let written = self.write_probe(format!("{stem}A"), body, probes).await?;
        let keeps_versions = version_id(&written.headers).is_some() || self.versioning_is_on().await;
        if keeps_versions {
            self.set_keeps_versions();
        }
        self.probe_order_below(&stem, probes).await?;
        let folded = matches!(self.probe_object((&format!("{stem}a")).into()).await, Probe::Present(_));
        Ok(Traits {
            name_style: if folded { NameStyle::Folded } else { NameStyle::Exact },
            etag_is_md5: etag(&written.headers).as_deref() == Some(digest.as_str()),
            keeps_versions,
            clock_skew_ms: self.clock_skew_ms(&written),
        })
    }

    /// The key is recorded even if the response was lost, so that it is deleted in any case.
    async fn write_probe(
        &self,
        key: String,
        body: Bytes,
        probes: &mut Vec<DeleteKey>,
    ) -> Result<SuccessResponse, Error> {
        let request = S3Request::new(Method::PUT, Some(&key), &[]).with_payload(Payload::Known(body));
        let answer = self.transport.answer(request).await;
        let version_id = answer.as_ref().ok().and_then(|answer| version_id(&answer.headers));
        probes.push(DeleteKey { key, version_id });
        Ok(answer?)
    }

    /// In byte order `a-b` comes before `a/b`; a store that sorts folders by their names lists it after.
    async fn probe_order_below(&self, stem: &str, probes: &mut Vec<DeleteKey>) -> Result<ListOrder, Error> {
        let folder = format!("{stem}-order/");
        for name in ["a/b", "a-b"] {
            self.write_probe(format!("{folder}{name}"), Bytes::from("s3o"), probes).await?;
        }
        self.order_in(&folder).await
    }

    /// Deletes all probe objects, also after a failed delete.
    async fn delete_probes(&self, probes: Vec<DeleteKey>) -> Result<(), Error> {
        let mut removed = Ok(());
        for probe in probes {
            removed = removed.and(self.delete_probe(probe).await);
        }
        removed
    }

    /// A service without this request keeps no versions.
    async fn versioning_is_on(&self) -> bool {
        let answer = self.transport.answer(S3Request::new(Method::GET, None, &[("versioning", "")])).await;
        let root = answer.ok().and_then(|answer| XmlElement::parse(&answer.body).ok());
        root.is_some_and(|root| matches!(root.child_text("Status"), Some("Enabled" | "Suspended")))
    }

    async fn delete_probe(&self, probe: DeleteKey) -> Result<(), Error> {
        let answer = self.delete_objects(std::slice::from_ref(&probe)).await.pop();
        match answer {
            Some(DeleteAnswer::Deleted | DeleteAnswer::Absent) => {}
            Some(DeleteAnswer::Away(why)) => return Err(Error::Away(why)),
            other => return Err(Error::Refused(format!("the probe object was not deleted: {other:?}"))),
        }
        match self.probe_object((&probe.key).into()).await {
            Probe::Absent => Ok(()),
            Probe::Present(_) => Err(Error::Refused("the probe object still exists after its delete".to_owned())),
            Probe::Unknown(why) => Err(Error::Unknown(why)),
        }
    }

    /// The `Date` header has whole seconds, so a difference below one second is no skew.
    fn clock_skew_ms(&self, answer: &SuccessResponse) -> Option<i64> {
        let store_seconds = parse_date(header_text(&answer.headers, "date")?)?;
        Some((store_seconds - self.transport.clock().now().seconds()) * 1000)
    }
}

/// Parses `Fri, 24 May 2013 00:00:00 GMT` to seconds since the epoch.
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
    fn date_headers_are_parsed() {
        assert_eq!(parse_date("Fri, 24 May 2013 00:00:00 GMT"), Some(1_369_353_600));
        assert_eq!(parse_date("yesterday"), None);
    }
}
