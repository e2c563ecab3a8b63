//! Access control lists: the one list that exists gives the owner full control.
//!
//! Some clients write the list back after every copy, so exactly this list is accepted. [`super::unsupported`] checks
//! canned lists in headers.

use s3o_engine::{GetObject, RequestedRange};
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput, GetObjectAclOutput, Grant, Grantee,
    Permission, PutBucketAclInput, PutBucketAclOutput, PutObjectAclInput, PutObjectAclOutput, Type,
};
use s3s::{S3Request, S3Response};

use super::errors::refuse;
use super::names;
use super::owner::{NAME, owner};
use super::refusal::Refusal;
use super::s3_handler::{S3Answer, S3Handler};

/// `GetBucketAcl`.
pub async fn of_bucket(handler: &S3Handler, request: S3Request<GetBucketAclInput>) -> S3Answer<GetBucketAclOutput> {
    handler.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants()), owner: Some(owner()) }))
}

/// `GetObjectAcl`.
pub async fn of_object(handler: &S3Handler, request: S3Request<GetObjectAclInput>) -> S3Answer<GetObjectAclOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    check_object_exists(handler, &input.bucket, &input.key).await?;
    let output = GetObjectAclOutput { grants: Some(grants()), owner: Some(owner()), ..GetObjectAclOutput::default() };
    Ok(S3Response::new(output))
}

/// `PutBucketAcl`: accepts only the list that the bucket already has.
pub async fn put_of_bucket(handler: &S3Handler, request: S3Request<PutBucketAclInput>) -> S3Answer<PutBucketAclOutput> {
    let input = request.input;
    check_policy(input.access_control_policy.as_ref())?;
    handler.engine.bucket(&names::bucket(&input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketAclOutput::default()))
}

/// `PutObjectAcl`: accepts only the list that the object already has.
pub async fn put_of_object(handler: &S3Handler, request: S3Request<PutObjectAclInput>) -> S3Answer<PutObjectAclOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    check_policy(input.access_control_policy.as_ref())?;
    check_object_exists(handler, &input.bucket, &input.key).await?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}

async fn check_object_exists(handler: &S3Handler, bucket: &str, key: &str) -> Result<(), Refusal> {
    let get = GetObject {
        bucket: names::bucket(bucket)?,
        key: names::key(key)?,
        wanted: RequestedRange::Whole,
        conditions: ReadConditions::default(),
    };
    handler.engine.head_object(&get).await.map(drop).map_err(refuse)
}

fn check_policy(policy: Option<&AccessControlPolicy>) -> Result<(), Refusal> {
    let Some(policy) = policy else { return Ok(()) };
    let is_owner = |id: Option<&String>| id.is_none_or(|id| id == NAME);
    let owned = policy.owner.as_ref().is_none_or(|owner| is_owner(owner.id.as_ref()));
    let grants = policy.grants.as_deref().unwrap_or_default();
    if owned && !grants.is_empty() && grants.iter().all(grants_full_control_to_owner) {
        return Ok(());
    }
    Err(Refusal::because(
        "NotImplemented",
        "Only the access control list that grants the owner FULL_CONTROL is implemented",
    ))
}

fn grants_full_control_to_owner(grant: &Grant) -> bool {
    let to_owner = grant.grantee.as_ref().is_some_and(|grantee| {
        grantee.id.as_deref() == Some(NAME) && grantee.uri.is_none() && grantee.email_address.is_none()
    });
    to_owner && grant.permission.as_ref().is_some_and(|permission| permission.as_str() == Permission::FULL_CONTROL)
}

fn grants() -> Vec<Grant> {
    let grantee = Grantee {
        display_name: Some(NAME.to_owned()),
        email_address: None,
        id: Some(NAME.to_owned()),
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    vec![Grant { grantee: Some(grantee), permission: Some(Permission::from_static(Permission::FULL_CONTROL)) }]
}

#[cfg(test)]
mod tests {
    use super::{check_policy, grants, owner};
    use s3s::dto::{AccessControlPolicy, Owner, Permission};

    fn policy() -> AccessControlPolicy {
        AccessControlPolicy { grants: Some(grants()), owner: Some(owner()) }
    }

    #[test]
    fn current_list_may_be_written_back() {
        assert!(check_policy(None).is_ok());
        assert!(check_policy(Some(&policy())).is_ok());
    }

    #[test]
    fn every_other_list_is_refused() {
        let refused = |change: fn(&mut AccessControlPolicy)| {
            let mut policy = policy();
            change(&mut policy);
            check_policy(Some(&policy)).is_err_and(|refusal| refusal.code == "NotImplemented")
        };
        assert!(refused(|policy| policy.grants = None));
        assert!(refused(|policy| policy.owner = Some(Owner { display_name: None, id: Some("other".into()) })));
        assert!(refused(|policy| {
            let mut grants = grants();
            grants[0].permission = Some(Permission::from_static(Permission::READ));
            policy.grants = Some(grants);
        }));
        assert!(refused(|policy| {
            let mut everyone = grants();
            if let Some(grantee) = &mut everyone[0].grantee {
                grantee.id = None;
                grantee.uri = Some("http://acs.amazonaws.com/groups/global/AllUsers".into());
            }
            policy.grants = Some([grants(), everyone].concat());
        }));
    }
}
