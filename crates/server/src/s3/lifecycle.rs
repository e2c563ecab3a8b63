//! Lifecycle rules of buckets. What is not offered is refused, never kept and ignored.

use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, RuleFault, RuleFaultKind, Status, complete};
use s3s::dto::{
    AbortIncompleteMultipartUpload, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, ExpirationStatus,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput, LifecycleExpiration, LifecycleRule,
    LifecycleRuleAndOperator, LifecycleRuleFilter, PutBucketLifecycleConfigurationInput,
    PutBucketLifecycleConfigurationOutput, TagSet,
};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::refusal::Refusal;
use super::tags::{self, OBJECT_TAGS_MAX};
use super::{names, times};

/// A bucket's rules; one that has none has no configuration either.
pub async fn get(
    door: &Door,
    request: S3Request<GetBucketLifecycleConfigurationInput>,
) -> Answer<GetBucketLifecycleConfigurationOutput> {
    let found = door.engine.lifecycle(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let rules = found.ok_or_else(|| Refusal::new("NoSuchLifecycleConfiguration"))?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(rules.iter().map(to_xml).collect()),
        ..GetBucketLifecycleConfigurationOutput::default()
    }))
}

/// Replaces a bucket's rules.
pub async fn put(
    door: &Door,
    request: S3Request<PutBucketLifecycleConfigurationInput>,
) -> Answer<PutBucketLifecycleConfigurationOutput> {
    let input = request.input;
    if input.transition_default_minimum_object_size.is_some() {
        return Err(not_offered("x-amz-transition-default-minimum-object-size").into());
    }
    let configuration = input.lifecycle_configuration.ok_or_else(|| Refusal::new("MissingRequestBodyError"))?;
    let rules = configuration.rules.into_iter().map(from_xml).collect::<Result<Vec<_>, _>>()?;
    let rules = complete(rules).map_err(refuse_rule)?;
    door.engine.set_lifecycle(&names::bucket(&input.bucket)?, Some(&rules)).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

/// Removes a bucket's rules.
pub async fn delete(
    door: &Door,
    request: S3Request<DeleteBucketLifecycleInput>,
) -> Answer<DeleteBucketLifecycleOutput> {
    let bucket = names::bucket(&request.input.bucket)?;
    door.engine.set_lifecycle(&bucket, None).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
}

fn not_offered(what: &str) -> Refusal {
    Refusal::because("NotImplemented", format!("{what} is not implemented here"))
}

fn malformed(why: &'static str) -> Refusal {
    Refusal::because("MalformedXML", why)
}

fn refuse_rule(fault: RuleFault) -> Refusal {
    let code = match fault.kind() {
        RuleFaultKind::Malformed => "MalformedXML",
        RuleFaultKind::Value => "InvalidArgument",
        RuleFaultKind::Combination => "InvalidRequest",
    };
    Refusal::because(code, fault.to_string())
}

fn from_xml(rule: LifecycleRule) -> Result<Rule, Refusal> {
    let unsupported = [
        (rule.transitions.is_some(), "Transition"),
        (rule.noncurrent_version_expiration.is_some(), "NoncurrentVersionExpiration"),
        (rule.noncurrent_version_transitions.is_some(), "NoncurrentVersionTransition"),
    ];
    if let Some((_, what)) = unsupported.into_iter().find(|(asked, _)| *asked) {
        return Err(not_offered(what));
    }
    let (filter, form) = filter(rule.filter, rule.prefix)?;
    Ok(Rule {
        id: rule.id.unwrap_or_default(),
        status: status(&rule.status)?,
        filter,
        form,
        expiration: rule.expiration.map(expiration).transpose()?,
        abort_after_days: rule.abort_incomplete_multipart_upload.as_ref().map(abort_days).transpose()?,
    })
}

fn status(status: &ExpirationStatus) -> Result<Status, Refusal> {
    match status.as_str() {
        ExpirationStatus::ENABLED => Ok(Status::Enabled),
        ExpirationStatus::DISABLED => Ok(Status::Disabled),
        _ => Err(malformed("Status is Enabled or Disabled")),
    }
}

/// Either a filter or, as it was done once, a prefix.
fn filter(filter: Option<LifecycleRuleFilter>, prefix: Option<String>) -> Result<(Filter, Form), Refusal> {
    match (filter, prefix) {
        (Some(filter), None) => conditions(filter),
        (None, Some(prefix)) => Ok((Filter { prefix: Some(prefix), ..Filter::default() }, Form::Prefix)),
        (Some(_), Some(_)) | (None, None) => Err(malformed("A rule has a Filter or a Prefix")),
    }
}

fn conditions(filter: LifecycleRuleFilter) -> Result<(Filter, Form), Refusal> {
    let LifecycleRuleFilter { and, object_size_greater_than, object_size_less_than, prefix, tag } = filter;
    let plain = Filter {
        prefix,
        tags: tags::from_xml(tag.into_iter().collect(), OBJECT_TAGS_MAX)?,
        size_greater_than: object_size_greater_than.map(size).transpose()?,
        size_less_than: object_size_less_than.map(size).transpose()?,
    };
    let Some(and) = and else { return Ok((plain, Form::Plain)) };
    if plain != Filter::default() {
        return Err(refuse_rule(RuleFault::TooManyConditions));
    }
    let joined = Filter {
        prefix: and.prefix,
        tags: tags::from_xml(and.tags.unwrap_or_default(), OBJECT_TAGS_MAX)?,
        size_greater_than: and.object_size_greater_than.map(size).transpose()?,
        size_less_than: and.object_size_less_than.map(size).transpose()?,
    };
    Ok((joined, Form::And))
}

fn size(bytes: i64) -> Result<u64, Refusal> {
    u64::try_from(bytes).map_err(|_| Refusal::because("InvalidRequest", "A size in a Filter is not negative"))
}

fn expiration(expiration: LifecycleExpiration) -> Result<Expiration, Refusal> {
    let LifecycleExpiration { date, days, expired_object_delete_marker } = expiration;
    if expired_object_delete_marker.is_some() {
        return Err(not_offered("ExpiredObjectDeleteMarker"));
    }
    match (date, days) {
        (Some(date), None) => Ok(Expiration::Date(times::from_s3(date))),
        (None, Some(days)) => u32::try_from(days).map(Expiration::Days).map_err(|_| refuse_rule(RuleFault::Days)),
        (Some(_), Some(_)) | (None, None) => Err(malformed("Expiration has either Days or Date")),
    }
}

fn abort_days(abort: &AbortIncompleteMultipartUpload) -> Result<u32, Refusal> {
    let days = abort.days_after_initiation.ok_or_else(|| malformed("DaysAfterInitiation is missing"))?;
    u32::try_from(days).map_err(|_| refuse_rule(RuleFault::AbortDays))
}

fn to_xml(rule: &Rule) -> LifecycleRule {
    let status = match rule.status {
        Status::Enabled => ExpirationStatus::ENABLED,
        Status::Disabled => ExpirationStatus::DISABLED,
    };
    let (filter, prefix) = match rule.form {
        Form::Plain => (Some(plain_to_xml(&rule.filter)), None),
        Form::And => (Some(LifecycleRuleFilter { and: Some(and_to_xml(&rule.filter)), ..Default::default() }), None),
        Form::Prefix => (None, rule.filter.prefix.clone()),
    };
    LifecycleRule {
        abort_incomplete_multipart_upload: rule
            .abort_after_days
            .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: Some(days_to_xml(days)) }),
        expiration: rule.expiration.map(expiration_to_xml),
        filter,
        id: Some(rule.id.clone()),
        noncurrent_version_expiration: None,
        noncurrent_version_transitions: None,
        prefix,
        status: ExpirationStatus::from_static(status),
        transitions: None,
    }
}

fn expiration_to_xml(expiration: Expiration) -> LifecycleExpiration {
    match expiration {
        Expiration::Days(days) | Expiration::OlderThanDays(days) => {
            LifecycleExpiration { days: Some(days_to_xml(days)), ..Default::default() }
        }
        Expiration::Date(date) => LifecycleExpiration { date: Some(times::to_s3(date)), ..Default::default() },
    }
}

/// Days came from a number of this kind.
fn days_to_xml(days: u32) -> i32 {
    i32::try_from(days).unwrap_or(i32::MAX)
}

fn size_to_xml(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn plain_to_xml(filter: &Filter) -> LifecycleRuleFilter {
    LifecycleRuleFilter {
        and: None,
        object_size_greater_than: filter.size_greater_than.map(size_to_xml),
        object_size_less_than: filter.size_less_than.map(size_to_xml),
        prefix: filter.prefix.clone(),
        tag: tags::to_xml(&filter.tags).into_iter().next(),
    }
}

fn and_to_xml(filter: &Filter) -> LifecycleRuleAndOperator {
    let tags: TagSet = tags::to_xml(&filter.tags);
    LifecycleRuleAndOperator {
        object_size_greater_than: filter.size_greater_than.map(size_to_xml),
        object_size_less_than: filter.size_less_than.map(size_to_xml),
        prefix: filter.prefix.clone(),
        tags: (!tags.is_empty()).then_some(tags),
    }
}

#[cfg(test)]
mod tests {
    use super::{from_xml, to_xml};
    use s3s::dto::{
        AbortIncompleteMultipartUpload, ExpirationStatus, LifecycleExpiration, LifecycleRule, LifecycleRuleAndOperator,
        LifecycleRuleFilter, NoncurrentVersionExpiration, Tag, Transition,
    };

    fn rule() -> LifecycleRule {
        LifecycleRule {
            abort_incomplete_multipart_upload: None,
            expiration: Some(LifecycleExpiration { days: Some(3), ..Default::default() }),
            filter: Some(LifecycleRuleFilter::default()),
            id: Some("a".to_owned()),
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: None,
            status: ExpirationStatus::from_static("Enabled"),
            transitions: None,
        }
    }

    fn tag(key: &str) -> Tag {
        Tag { key: Some(key.to_owned()), value: Some("v".to_owned()) }
    }

    fn filtered(filter: LifecycleRuleFilter) -> LifecycleRule {
        LifecycleRule { filter: Some(filter), ..rule() }
    }

    #[test]
    fn rules_read_back_as_they_were_written() {
        let and = LifecycleRuleAndOperator {
            object_size_greater_than: Some(5),
            object_size_less_than: Some(10),
            prefix: Some("p".to_owned()),
            tags: Some(vec![tag("a"), tag("b")]),
        };
        let abort = AbortIncompleteMultipartUpload { days_after_initiation: Some(2) };
        for written in [
            rule(),
            LifecycleRule { status: ExpirationStatus::from_static("Disabled"), ..rule() },
            LifecycleRule { filter: None, prefix: Some(String::new()), ..rule() },
            LifecycleRule { abort_incomplete_multipart_upload: Some(abort), ..rule() },
            filtered(LifecycleRuleFilter { prefix: Some("tmp/".to_owned()), ..Default::default() }),
            filtered(LifecycleRuleFilter { tag: Some(tag("a")), ..Default::default() }),
            filtered(LifecycleRuleFilter { object_size_less_than: Some(7), ..Default::default() }),
            filtered(LifecycleRuleFilter { and: Some(and), ..Default::default() }),
        ] {
            assert_eq!(to_xml(&from_xml(written.clone()).unwrap()), written);
        }
    }

    #[test]
    fn what_is_not_offered_or_makes_no_sense_is_refused() {
        let both = LifecycleExpiration {
            days: Some(1),
            date: Some(super::times::to_s3(super::times::from_s3(std::time::SystemTime::UNIX_EPOCH.into()))),
            ..Default::default()
        };
        let marker = LifecycleExpiration { expired_object_delete_marker: Some(true), ..Default::default() };
        let nothing = AbortIncompleteMultipartUpload::default();
        let negative = LifecycleExpiration { days: Some(-1), ..Default::default() };
        let beside = LifecycleRuleFilter {
            and: Some(LifecycleRuleAndOperator::default()),
            prefix: Some("p".to_owned()),
            ..Default::default()
        };
        for (written, code) in [
            (LifecycleRule { transitions: Some(vec![Transition::default()]), ..rule() }, "NotImplemented"),
            (
                LifecycleRule { noncurrent_version_expiration: Some(NoncurrentVersionExpiration::default()), ..rule() },
                "NotImplemented",
            ),
            (LifecycleRule { noncurrent_version_transitions: Some(vec![]), ..rule() }, "NotImplemented"),
            (LifecycleRule { expiration: Some(marker), ..rule() }, "NotImplemented"),
            (LifecycleRule { expiration: Some(both), ..rule() }, "MalformedXML"),
            (LifecycleRule { expiration: Some(LifecycleExpiration::default()), ..rule() }, "MalformedXML"),
            (LifecycleRule { expiration: Some(negative), ..rule() }, "InvalidArgument"),
            (LifecycleRule { abort_incomplete_multipart_upload: Some(nothing), ..rule() }, "MalformedXML"),
            (LifecycleRule { filter: None, ..rule() }, "MalformedXML"),
            (LifecycleRule { prefix: Some(String::new()), ..rule() }, "MalformedXML"),
            (LifecycleRule { status: ExpirationStatus::from_static("enabled"), ..rule() }, "MalformedXML"),
            (filtered(beside), "MalformedXML"),
            (filtered(LifecycleRuleFilter { object_size_less_than: Some(-1), ..Default::default() }), "InvalidRequest"),
            (filtered(LifecycleRuleFilter { tag: Some(tag("")), ..Default::default() }), "InvalidTag"),
        ] {
            assert_eq!(from_xml(written).unwrap_err().code, code);
        }
    }
}
