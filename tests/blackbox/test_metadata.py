"""Metadata of objects: system headers, user metadata, tags and response overrides."""

import datetime

import pytest

from s3_checks import PART_BYTES_MIN, multipart, refused

EXPIRES = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
HEADERS = {
    "CacheControl": "max-age=60, public",
    "ContentDisposition": 'attachment; filename="a b.txt"',
    "ContentEncoding": "gzip",
    "ContentLanguage": "de-CH",
    "ContentType": "text/plain; charset=utf-8",
    "Expires": EXPIRES,
}


def assert_returned(answer):
    for name, value in HEADERS.items():
        if name != "Expires":
            assert answer[name] == value, name
    assert answer["ResponseMetadata"]["HTTPHeaders"]["expires"] == "Wed, 02 Jan 2030 03:04:05 GMT"


def test_system_headers_are_stored_and_returned(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", **HEADERS)
    assert_returned(s3.head_object(Bucket=bucket, Key="a"))
    assert_returned(s3.get_object(Bucket=bucket, Key="a"))


def test_system_headers_of_a_multipart_object_are_returned(s3, bucket):
    multipart(s3, bucket, "a", [b"p" * PART_BYTES_MIN, b"q"], Metadata={"m": "1"}, Tagging="t=1", **HEADERS)
    head = s3.head_object(Bucket=bucket, Key="a")
    assert_returned(head)
    assert head["Metadata"] == {"m": "1"}
    assert s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"] == [{"Key": "t", "Value": "1"}]


def test_an_object_without_a_type_gets_the_default_one(s3, raw, bucket):
    assert raw.request("PUT", raw.path(bucket, "a"), body=b"x").status == 200
    assert s3.head_object(Bucket=bucket, Key="a")["ContentType"] in (
        "binary/octet-stream",
        "application/octet-stream",
    )


def test_aws_chunked_is_not_stored_as_encoding(s3, raw, bucket):
    answer = raw.put_chunked(
        raw.path(bucket, "a"),
        b"body",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        headers={"Content-Encoding": "aws-chunked,gzip"},
    )
    assert answer.status == 200, answer
    assert s3.head_object(Bucket=bucket, Key="a")["ContentEncoding"] == "gzip"


def test_storage_class_standard_is_accepted(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", StorageClass="STANDARD")
    assert s3.head_object(Bucket=bucket, Key="a").get("StorageClass", "STANDARD") == "STANDARD"


def test_user_metadata_names_are_returned_in_lower_case(s3, bucket):
    metadata = {"simple": "value", "Upper-Case": "Value", "empty": "", "spaces": "a  b", "symbols": "=&;,%2F+"}
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", Metadata=metadata)
    found = s3.head_object(Bucket=bucket, Key="a")["Metadata"]
    assert found == {name.lower(): value for name, value in metadata.items()}
    assert s3.get_object(Bucket=bucket, Key="a")["Metadata"] == found


def test_too_much_user_metadata_is_refused(s3, bucket, s3o_only):
    with refused("MetadataTooLarge", 400):
        s3.put_object(Bucket=bucket, Key="a", Body=b"x", Metadata={"big": "v" * 2100})


@pytest.mark.parametrize("method", ["get_object", "head_object"])
def test_response_overrides_change_the_answer_only(s3, bucket, method):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", **HEADERS)
    answer = getattr(s3, method)(
        Bucket=bucket,
        Key="a",
        ResponseCacheControl="no-cache",
        ResponseContentDisposition="inline",
        ResponseContentEncoding="identity",
        ResponseContentLanguage="fr",
        ResponseContentType="image/png",
        ResponseExpires=EXPIRES + datetime.timedelta(days=1),
    )
    assert answer["CacheControl"] == "no-cache"
    assert answer["ContentDisposition"] == "inline"
    assert answer["ContentEncoding"] == "identity"
    assert answer["ContentLanguage"] == "fr"
    assert answer["ContentType"] == "image/png"
    assert answer["ResponseMetadata"]["HTTPHeaders"]["expires"] == "Thu, 03 Jan 2030 03:04:05 GMT"
    assert_returned(s3.head_object(Bucket=bucket, Key="a"))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("name", ["content-type", "content-disposition", "cache-control", "content-encoding"])
def test_response_overrides_add_no_headers(s3, raw, bucket, method, name):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    override = {f"response-{name}": "text/plain\r\nset-cookie: stolen"}
    answer = raw.request(method, raw.path(bucket, "a"), query=override)
    assert answer.status == 400, answer
    assert "set-cookie" not in answer.headers


def test_non_ascii_metadata_is_returned_encoded(s3, raw, bucket, s3o_only):
    def alter(headers):
        headers["x-amz-meta-name"] = "é日".encode()

    answer = raw.request("PUT", raw.path(bucket, "a"), headers={"x-amz-meta-name": "é日"}, body=b"x", alter=alter)
    assert answer.status == 200, answer
    assert s3.head_object(Bucket=bucket, Key="a")["Metadata"] == {"name": "=?UTF-8?B?w6nml6U=?="}
    s3.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    assert s3.get_object(Bucket=bucket, Key="b")["Metadata"] == {"name": "=?UTF-8?B?w6nml6U=?="}


def test_object_tags_are_stored_counted_replaced_and_deleted(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", Tagging="one=1&two=a%20b%26")

    def tags():
        return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"]}

    assert tags() == {"one": "1", "two": "a b&"}
    assert s3.get_object(Bucket=bucket, Key="a")["TagCount"] == 2
    before = s3.head_object(Bucket=bucket, Key="a")
    s3.put_object_tagging(Bucket=bucket, Key="a", Tagging={"TagSet": [{"Key": "three", "Value": "é"}]})
    assert tags() == {"three": "é"}
    s3.delete_object_tagging(Bucket=bucket, Key="a")
    assert tags() == {}
    after = s3.head_object(Bucket=bucket, Key="a")
    assert (before["ETag"], before["LastModified"]) == (after["ETag"], after["LastModified"])


@pytest.mark.parametrize(
    "tags",
    [
        [{"Key": f"k{number}", "Value": "v"} for number in range(11)],
        [{"Key": "same", "Value": "1"}, {"Key": "same", "Value": "2"}],
        [{"Key": "k" * 129, "Value": "v"}],
        [{"Key": "k", "Value": "v" * 257}],
    ],
    ids=["eleven", "twice the same", "long key", "long value"],
)
def test_tags_outside_s3s_bounds_are_refused(s3, bucket, tags):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x", Tagging="old=1")
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.put_object_tagging(Bucket=bucket, Key="a", Tagging={"TagSet": tags})
    assert caught.value.response["Error"]["Code"] in ("InvalidTag", "BadRequest")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert s3.get_object_tagging(Bucket=bucket, Key="a")["TagSet"] == [{"Key": "old", "Value": "1"}]


def test_tags_of_a_missing_object_are_refused(s3, bucket):
    with refused("NoSuchKey", 404):
        s3.get_object_tagging(Bucket=bucket, Key="missing")
