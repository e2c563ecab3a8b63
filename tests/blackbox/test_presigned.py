"""Presigned URLs: valid only for the signed request and the signed time."""

import http.client
from urllib.parse import urlsplit

import pytest

from polling import eventually
from raw_client import Answer, assert_refused
from s3_checks import body_of, keys_of, read


def fetch(url, method="GET", body=None, headers=None):
    """Requests exactly this URL: no normalisation, no library headers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers or {})
        response = connection.getresponse()
        lowered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, lowered, response.read())
    finally:
        connection.close()


def presign(s3, method, bucket, key, seconds=60, **options):
    return s3.generate_presigned_url(method, {"Bucket": bucket, "Key": key, **options}, ExpiresIn=seconds)


@pytest.mark.parametrize("key", ["plain", "a b+c%2F~é", "a//b", "../x"])
def test_presigned_urls_put_and_get(s3, bucket, key):
    body = body_of(5000)
    assert fetch(presign(s3, "put_object", bucket, key), "PUT", body).status == 200
    answer = fetch(presign(s3, "get_object", bucket, key))
    assert (answer.status, answer.body) == (200, body)
    assert fetch(presign(s3, "head_object", bucket, key), "HEAD").status == 200
    assert fetch(presign(s3, "delete_object", bucket, key), "DELETE").status == 204
    assert keys_of(s3, bucket) == []


def test_a_presigned_url_carries_overrides(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    answer = fetch(presign(s3, "get_object", bucket, "a", ResponseContentDisposition='attachment; filename="b c"'))
    assert answer.headers["content-disposition"] == 'attachment; filename="b c"'


def test_expired_presigned_url_is_refused(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    url = presign(s3, "get_object", bucket, "a", seconds=1)
    answer = eventually(lambda: (found := fetch(url)).status != 200 and found, 5, 0.2)
    assert_refused(answer, 403, "AccessDenied", f"/{bucket}/a")


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace("/a?", "/b?"),
        lambda url: url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"),
        lambda url: url + "&response-content-type=text%2Fhtml",
        lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
    ],
    ids=["other key", "longer time", "added override", "other signature"],
)
def test_a_changed_presigned_url_is_refused(s3, bucket, change):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    s3.put_object(Bucket=bucket, Key="b", Body=b"y")
    url = presign(s3, "get_object", bucket, "a")
    assert fetch(url).status == 200
    assert_refused(fetch(change(url)), 403, "SignatureDoesNotMatch")


def test_presigned_get_cannot_put_or_delete(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    url = presign(s3, "get_object", bucket, "a")
    assert fetch(url, "PUT", b"y").status == 403
    assert fetch(url, "DELETE").status == 403
    assert read(s3, bucket, "a") == b"x"


@pytest.mark.parametrize(
    "written", ["X-Amz-SignedHeaders", "X-Amz-Signed%48eaders", "%58%2DAmz%2DSignedHeaders"], ids=["plain", "H", "X-"]
)
def test_presigned_put_does_not_accept_an_unsigned_copy_source(s3, bucket, written):
    s3.put_object(Bucket=bucket, Key="secret", Body=b"x")
    url = presign(s3, "put_object", bucket, "stolen").replace("X-Amz-SignedHeaders", written)
    answer = fetch(url, "PUT", b"", headers={"x-amz-copy-source": f"{bucket}/secret"})
    assert_refused(answer, 403, "AccessDenied")
    assert keys_of(s3, bucket) == ["secret"]


def test_presigned_urls_are_valid_for_at_most_a_week(s3, bucket):
    answer = fetch(presign(s3, "get_object", bucket, "a", seconds=8 * 24 * 3600))
    assert_refused(answer, 400, "AuthorizationQueryParametersError")


def test_a_presigned_part_can_be_uploaded(s3, bucket):
    names = {"Bucket": bucket, "Key": "joined"}
    names["UploadId"] = s3.create_multipart_upload(**names)["UploadId"]
    url = s3.generate_presigned_url("upload_part", {**names, "PartNumber": 1})
    etag = fetch(url, "PUT", b"part").headers["etag"]
    s3.complete_multipart_upload(**names, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert read(s3, bucket, "joined") == b"part"
