//! Lifecycle configuration of buckets. Rules with unsupported actions are refused, never stored and ignored.

use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, RuleFault, RuleFaultKind, Status, complete};
use s3s::dto::{
    AbortIncompleteMultipartUpload, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, ExpirationStatus,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput, LifecycleExpiration, LifecycleRule,
    LifecycleRuleAndOperator, LifecycleRuleFilter, PutBucketLifecycleConfigurationInput,
    PutBucketLifecycleConfigurationOutput, TagSet,
};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};
use super::tags::{self, OBJECT_TAGS_MAX};
use super::{names, times};

/// `GetBucketLifecycleConfiguration`.
pub async fn get(
    handler: &S3Handler,
    request: S3Request<GetBucketLifecycleConfigurationInput>,
) -> S3Answer<GetBucketLifecycleConfigurationOutput> {
    let found = handler.engine.lifecycle(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    let rules = found.ok_or_else(|| Refusal::new("NoSuchLifecycleConfiguration"))?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(rules.iter().map(to_xml).collect()),
        ..GetBucketLifecycleConfigurationOutput::default()
    }))
}

/// `PutBucketLifecycleConfiguration`.
pub async fn put(
    handler: &S3Handler,
    request: S3Request<PutBucketLifecycleConfigurationInput>,
) -> S3Answer<PutBucketLifecycleConfigurationOutput> {
    let input = request.input;
    if input.transition_default_minimum_object_size.is_some() {
        return Err(not_implemented("x-amz-transition-default-minimum-object-size").into());
    }
    let configuration = input.lifecycle_configuration.ok_or_else(|| Refusal::new("MissingRequestBodyError"))?;
    let rules = configuration.rules.into_iter().map(from_xml).collect::<Result<Vec<_>, _>>()?;
    let rules = complete(rules).map_err(refuse_rule)?;
    handler.engine.set_lifecycle(&names::bucket(&input.bucket)?, Some(&rules)).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

/// `DeleteBucketLifecycle`.
pub async fn delete(
    handler: &S3Handler,
    request: S3Request<DeleteBucketLifecycleInput>,
) -> S3Answer<DeleteBucketLifecycleOutput> {
    let bucket = names::bucket(&request.input.bucket)?;
    handler.engine.set_lifecycle(&bucket, None).await.map_err(refuse)?;
    Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
}

fn not_implemented(what: &str) -> Refusal {
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
    if let Some((_, what)) = unsupported.into_iter().find(|(requested, _)| *requested) {
        return Err(not_implemented(what));
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
        _ => Err(malformed("Status must be Enabled or Disabled")),
    }
}

/// A rule has a filter or, in its older form, a prefix.
fn filter(filter: Option<LifecycleRuleFilter>, prefix: Option<String>) -> Result<(Filter, Form), Refusal> {
    match (filter, prefix) {
        (Some(filter), None) => conditions(filter),
        (None, Some(prefix)) => Ok((Filter { prefix: Some(prefix), ..Filter::default() }, Form::Prefix)),
        (Some(_), Some(_)) | (None, None) => Err(malformed("A rule must have either a Filter or a Prefix")),
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
    u64::try_from(bytes).map_err(|_| Refusal::because("InvalidRequest", "A size in a Filter must not be negative"))
}

fn expiration(expiration: LifecycleExpiration) -> Result<Expiration, Refusal> {
    let LifecycleExpiration { date, days, expired_object_delete_marker } = expiration;
    if expired_object_delete_marker.is_some() {
        return Err(not_implemented("ExpiredObjectDeleteMarker"));
    }
    match (date, days) {
        (Some(date), None) => Ok(Expiration::Date(times::from_s3(date))),
        (None, Some(days)) => u32::try_from(days).map(Expiration::Days).map_err(|_| refuse_rule(RuleFault::Days)),
        (Some(_), Some(_)) | (None, None) => Err(malformed("Expiration must have either Days or Date")),
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

/// Never saturates: the number was an `i32` in the request.
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
mod tests;
