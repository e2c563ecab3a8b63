"""Buckets: created, found, listed and deleted; never deleted unless empty."""

import pytest

from s3_checks import PART_BYTES_MIN, keys_of, multipart, read, refused


def test_a_new_bucket_is_found_listed_and_empty(s3, bucket):
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    entry = next(entry for entry in s3.list_buckets()["Buckets"] if entry["Name"] == bucket)
    assert entry["CreationDate"].year >= 2024
    assert keys_of(s3, bucket) == []


def test_buckets_are_listed_in_order_with_an_owner(s3, new_bucket):
    made = {new_bucket() for _ in range(3)}
    answer = s3.list_buckets()
    names = [entry["Name"] for entry in answer["Buckets"]]
    assert made <= set(names) and names == sorted(names)
    assert answer["Owner"]["ID"]


def test_existing_bucket_is_not_created_again(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"kept")
    try:
        s3.create_bucket(Bucket=bucket)
    except s3.exceptions.ClientError as refusal:
        assert refusal.response["Error"]["Code"] in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
    assert read(s3, bucket, "a") == b"kept"


def test_only_an_empty_bucket_can_be_deleted(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=bucket)
    assert read(s3, bucket, "a") == b"x"
    s3.delete_object(Bucket=bucket, Key="a")
    assert s3.delete_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 204
    with refused("404", 404):
        s3.head_bucket(Bucket=bucket)
    with refused("NoSuchBucket", 404):
        s3.list_objects_v2(Bucket=bucket)


def test_completed_upload_does_not_block_bucket_deletion(s3, bucket):
    multipart(s3, bucket, "a", [b"a" * PART_BYTES_MIN, b"b"])
    s3.delete_object(Bucket=bucket, Key="a")
    s3.delete_bucket(Bucket=bucket)


def test_recreated_bucket_is_empty(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="a")
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert keys_of(s3, bucket) == []


def test_the_location_of_the_default_region_is_empty(s3, bucket):
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None


def test_versioning_is_reported_as_off(s3, bucket):
    assert s3.get_bucket_versioning(Bucket=bucket).get("Status") in (None, "Suspended")


def test_bucket_acl_grants_full_control_to_the_owner(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    for acl in (s3.get_bucket_acl(Bucket=bucket), s3.get_object_acl(Bucket=bucket, Key="a")):
        assert [grant["Permission"] for grant in acl["Grants"]] == ["FULL_CONTROL"]


@pytest.mark.parametrize("name", ["admin", "metrics", "health", "ui-x", "s3o", "a.b-c.d"])
def test_buckets_named_like_admin_routes_work(s3, name, s3o_only):
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="api/status", Body=b"mine")
    assert read(s3, name, "api/status") == b"mine"
    s3.delete_object(Bucket=name, Key="api/status")
    s3.delete_bucket(Bucket=name)


def test_bucket_tags_are_stored_and_deleted(s3, bucket):
    tags = [{"Key": "team", "Value": "blue"}, {"Key": "env", "Value": "test é"}]
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    found = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    assert sorted(tag["Key"] for tag in found) == ["env", "team"]
    s3.delete_bucket_tagging(Bucket=bucket)
    with refused("NoSuchTagSet", 404):
        s3.get_bucket_tagging(Bucket=bucket)
