"""Keys that are special in file systems, paths, URLs and XML work like any other."""

import pytest

from s3_checks import body_of, etag_of, keys_of, read

AWKWARD = {
    "a key beside its folder": ["a", "a/b", "a/b/c"],
    "empty segments": ["a//b", "a///b", "a/b"],
    "dot segments": ["./x", "../x", "x", "a/./b", "a/../b", "a/..", ".", "..", "..."],
    "slashes at the ends": ["/x", "//x", "x", "x/", "x//", "/"],
    "1024 bytes": ["k" * 1024, "d/" * 511 + "kk", "é" * 512],
    "255-byte segments": ["s" * 255, f"{'t' * 255}/{'u' * 255}/v", "é" * 127],
    "spaces": [" ", "a b", " a", "a ", "a  b", "a/ /b"],
    "plus and percent": ["a+b", "a b+", "a%2Fb", "a/b", "%", "%%", "%zz", "a%20b", "%00"],
    "tilde": ["~", "~a", "a~b", "a~", "a~~b"],
    "unicode": ["é", "e\u0301", "日本語", "\U0001f600", "\u202e", "ß", "\ufeffx"],
    "control characters": ["\x01", "a\tb", "a\nb", "a\rb", "a\r\nb", "\x7f", "a\x1fb"],
    "upper and lower case": ["Case", "case", "CASE", "dir/X", "DIR/x", "Dir/X"],
    "xml and url syntax": ["a&b", "<a>", "a'b\"c", "a?b=c&d", "a#b", "a;b", "a=b", "a:b", "a|b*", "a\\b", "$[^]{}`"],
    "names of our own": [".s3o/identity.json", ".s3o/tmp/x", "a~0190b5f2-0000-7000-8000-000000000000", "TO_DELETE"],
}


@pytest.mark.parametrize("group", AWKWARD)
def test_awkward_keys_read_back_their_own_bytes(s3, bucket, group):
    keys = AWKWARD[group]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=body_of(50, key))
    assert keys_of(s3, bucket) == sorted(keys, key=lambda key: key.encode())
    sizes = {entry["Key"]: entry["ETag"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    for key in keys:
        assert read(s3, bucket, key) == body_of(50, key)
        assert s3.head_object(Bucket=bucket, Key=key)["ETag"] == sizes[key] == etag_of(body_of(50, key))
    gone, *left = keys
    s3.delete_object(Bucket=bucket, Key=gone)
    assert keys_of(s3, bucket) == sorted(left, key=lambda key: key.encode())
    for key in left:
        assert read(s3, bucket, key) == body_of(50, key)


def test_awkward_keys_are_deleted_in_one_batch(s3, bucket):
    """XML cannot represent control characters, so this test leaves them out."""
    keys = sorted({key for name, group in AWKWARD.items() if name != "control characters" for key in group})
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == keys
    assert keys_of(s3, bucket) == []


def test_a_key_and_its_folder_do_not_collide(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"inner")
    s3.put_object(Bucket=bucket, Key="a", Body=b"outer")
    s3.delete_object(Bucket=bucket, Key="a/b")
    assert read(s3, bucket, "a") == b"outer"
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"again")
    s3.delete_object(Bucket=bucket, Key="a")
    assert read(s3, bucket, "a/b") == b"again"


@pytest.mark.parametrize("key", ["a//b", "../x", "tab\tline\n", "é" * 512, "%2F+ ~"])
def test_awkward_keys_take_multipart_uploads(s3, bucket, key):
    names = {"Bucket": bucket, "Key": key}
    names["UploadId"] = s3.create_multipart_upload(**names)["UploadId"]
    etag = s3.upload_part(**names, PartNumber=1, Body=b"part")["ETag"]
    assert s3.list_parts(**names)["Key"] == key
    s3.complete_multipart_upload(**names, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert read(s3, bucket, key) == b"part"


def test_a_path_is_never_normalised_or_redirected(raw, bucket):
    for key in ("a//b", "a/./b", "a/../b", "//"):
        assert raw.request("PUT", raw.path(bucket, key), body=key.encode()).status == 200
    for key in ("a//b", "a/./b", "a/../b", "//"):
        answer = raw.request("GET", raw.path(bucket, key))
        assert (answer.status, answer.body) == (200, key.encode())
