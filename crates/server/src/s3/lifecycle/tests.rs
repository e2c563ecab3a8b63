//! Tests of lifecycle rules between XML and the model.

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
fn rules_round_trip() {
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
fn unsupported_and_malformed_rules_are_refused() {
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
