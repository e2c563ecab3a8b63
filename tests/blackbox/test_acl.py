"""ACLs: the effective one can be read and written back; any other is refused."""

import pytest

from s3_checks import refused

EVERYONE = {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AllUsers"}

pytestmark = pytest.mark.usefixtures("s3o_only")


@pytest.fixture(params=["object", "bucket"])
def acl(request, s3, bucket):
    """Functions that read and write the ACL of an object or of a bucket."""
    if request.param == "bucket":
        return lambda: s3.get_bucket_acl(Bucket=bucket), lambda **asked: s3.put_bucket_acl(Bucket=bucket, **asked)
    names = {"Bucket": bucket, "Key": "a"}
    s3.put_object(**names, Body=b"x")
    return lambda: s3.get_object_acl(**names), lambda **asked: s3.put_object_acl(**names, **asked)


def policy_of(answer):
    return {"Owner": answer["Owner"], "Grants": answer["Grants"]}


def test_effective_acl_can_be_written_back(acl):
    get, put = acl
    before = policy_of(get())
    put(AccessControlPolicy=before)
    put(ACL="private")
    assert policy_of(get()) == before


def test_any_other_acl_is_not_implemented(acl):
    get, put = acl
    before = policy_of(get())
    owner = before["Grants"][0]["Grantee"]
    for grants in (
        [],
        [{"Grantee": owner, "Permission": "READ"}],
        [{"Grantee": {**owner, "ID": "other"}, "Permission": "FULL_CONTROL"}],
        [*before["Grants"], {"Grantee": EVERYONE, "Permission": "READ"}],
    ):
        with refused("NotImplemented", 501):
            put(AccessControlPolicy={**before, "Grants": grants})
    with refused("NotImplemented", 501):
        put(ACL="public-read")
    with refused("NotImplemented", 501):
        put(GrantRead='uri="http://acs.amazonaws.com/groups/global/AllUsers"')
    assert policy_of(get()) == before


def test_missing_object_and_bucket_have_no_acl(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.put_object_acl(Bucket=bucket, Key="missing", ACL="private")
    with refused("NoSuchBucket", 404):
        s3.put_bucket_acl(Bucket="no-such-bucket-x", ACL="private")
