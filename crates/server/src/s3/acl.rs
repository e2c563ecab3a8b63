//! Access control lists: the owner may do everything, and no list says otherwise.
//!
//! Some clients write a list back after every copy, so a list that says just this is taken; the
//! canned ones among the headers are judged where all headers are.

use s3o_engine::{GetObject, Wanted};
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput, GetObjectAclOutput, Grant, Grantee,
    Permission, PutBucketAclInput, PutBucketAclOutput, PutObjectAclInput, PutObjectAclOutput, Type,
};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::names;
use super::owner::{NAME, owner};
use super::refusal::Refusal;

/// A bucket's list.
pub async fn of_bucket(door: &Door, request: S3Request<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
    door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants()), owner: Some(owner()) }))
}

/// An object's list.
pub async fn of_object(door: &Door, request: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    demand_object(door, &input.bucket, &input.key).await?;
    let output = GetObjectAclOutput { grants: Some(grants()), owner: Some(owner()), ..GetObjectAclOutput::default() };
    Ok(S3Response::new(output))
}

/// Takes a bucket's list if it is the one that holds.
pub async fn put_of_bucket(door: &Door, request: S3Request<PutBucketAclInput>) -> Answer<PutBucketAclOutput> {
    let input = request.input;
    demand_what_holds(input.access_control_policy.as_ref())?;
    door.engine.bucket(&names::bucket(&input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(PutBucketAclOutput::default()))
}

/// Takes an object's list if it is the one that holds.
pub async fn put_of_object(door: &Door, request: S3Request<PutObjectAclInput>) -> Answer<PutObjectAclOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    demand_what_holds(input.access_control_policy.as_ref())?;
    demand_object(door, &input.bucket, &input.key).await?;
    Ok(S3Response::new(PutObjectAclOutput::default()))
}

async fn demand_object(door: &Door, bucket: &str, key: &str) -> Result<(), Refusal> {
    let get = GetObject {
        bucket: names::bucket(bucket)?,
        key: names::key(key)?,
        wanted: Wanted::Whole,
        conditions: ReadConditions::default(),
    };
    door.engine.head_object(&get).await.map(drop).map_err(refuse)
}

fn demand_what_holds(policy: Option<&AccessControlPolicy>) -> Result<(), Refusal> {
    let Some(policy) = policy else { return Ok(()) };
    let is_owner = |id: Option<&String>| id.is_none_or(|id| id == NAME);
    let owned = policy.owner.as_ref().is_none_or(|owner| is_owner(owner.id.as_ref()));
    let grants = policy.grants.as_deref().unwrap_or_default();
    if owned && !grants.is_empty() && grants.iter().all(gives_the_owner_everything) {
        return Ok(());
    }
    Err(Refusal::because("NotImplemented", "No access control list but that of the owner alone is implemented"))
}

fn gives_the_owner_everything(grant: &Grant) -> bool {
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
    use super::{demand_what_holds, grants, owner};
    use s3s::dto::{AccessControlPolicy, Owner, Permission};

    fn policy() -> AccessControlPolicy {
        AccessControlPolicy { grants: Some(grants()), owner: Some(owner()) }
    }

    #[test]
    fn the_list_that_holds_may_be_written_back() {
        assert!(demand_what_holds(None).is_ok());
        assert!(demand_what_holds(Some(&policy())).is_ok());
    }

    #[test]
    fn every_other_list_is_refused() {
        let refused = |change: fn(&mut AccessControlPolicy)| {
            let mut policy = policy();
            change(&mut policy);
            demand_what_holds(Some(&policy)).is_err_and(|refusal| refusal.code == "NotImplemented")
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
