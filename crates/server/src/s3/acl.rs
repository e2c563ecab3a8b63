//! Access control lists: the owner may do everything, and no list says otherwise.

use s3o_engine::{GetObject, Wanted};
use s3o_model::conditions::ReadConditions;
use s3s::dto::{
    GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput, GetObjectAclOutput, Grant, Grantee, Permission, Type,
};
use s3s::{S3Request, S3Response};

use super::door::{Answer, Door};
use super::errors::refuse;
use super::names;
use super::owner::{NAME, owner};

/// A bucket's list.
pub async fn of_bucket(door: &Door, request: S3Request<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
    door.engine.bucket(&names::bucket(&request.input.bucket)?).await.map_err(refuse)?;
    Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants()), owner: Some(owner()) }))
}

/// An object's list.
pub async fn of_object(door: &Door, request: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
    let input = request.input;
    names::version(input.version_id.as_deref())?;
    let get = GetObject {
        bucket: names::bucket(&input.bucket)?,
        key: names::key(&input.key)?,
        wanted: Wanted::Whole,
        conditions: ReadConditions::default(),
    };
    door.engine.head_object(&get).await.map_err(refuse)?;
    let output = GetObjectAclOutput { grants: Some(grants()), owner: Some(owner()), ..GetObjectAclOutput::default() };
    Ok(S3Response::new(output))
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
