"""Listings in V1 and V2: byte order, pages without repeats or gaps, each common prefix once."""

import pytest

from s3_checks import body_of, etag_of, keys_of, refused


def fill(s3, bucket, keys):
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")


def pages_v1(s3, bucket, **options):
    """Every page of ListObjects V1."""
    marker = ""
    while True:
        page = s3.list_objects(Bucket=bucket, Marker=marker, **options)
        yield page
        if not page["IsTruncated"]:
            return
        last = [entry["Key"] for entry in page.get("Contents", [])]
        last += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        marker = page.get("NextMarker") or max(last)


def test_keys_are_listed_in_byte_order(s3, bucket):
    keys = ["a", "a-b", "a/b", "a0", "B", "b", "Z", "~", "é", "日本", "\U0001f600", "ab", "a b"]
    fill(s3, bucket, keys)
    assert keys_of(s3, bucket) == sorted(keys, key=lambda key: key.encode())


@pytest.mark.parametrize("page_size", [1, 2, 3, 7])
def test_pages_neither_repeat_nor_skip(s3, bucket, page_size):
    keys = [f"k{number:02}" for number in range(10)]
    fill(s3, bucket, keys)
    assert keys_of(s3, bucket, PaginationConfig={"PageSize": page_size}) == keys
    v1 = [entry["Key"] for page in pages_v1(s3, bucket, MaxKeys=page_size) for entry in page["Contents"]]
    assert v1 == keys


@pytest.mark.parametrize("page_size", [1, 2, 1000])
def test_common_prefix_is_listed_once_for_any_page_size(s3, bucket, page_size):
    fill(s3, bucket, ["a", "b/1", "b/2", "b/3", "b-", "c/1", "c/2/3", "d"])
    found = []
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": page_size}
    )
    for page in pages:
        entries = [entry["Key"] for entry in page.get("Contents", [])]
        entries += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        assert page["KeyCount"] == len(entries) <= page_size
        found += entries
    assert sorted(found) == ["a", "b-", "b/", "c/", "d"]
    v1 = []
    for page in pages_v1(s3, bucket, Delimiter="/", MaxKeys=page_size):
        v1 += [entry["Key"] for entry in page.get("Contents", [])]
        v1 += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
    assert sorted(v1) == ["a", "b-", "b/", "c/", "d"]


def test_a_prefix_selects_and_its_delimiter_groups_below_it(s3, bucket):
    fill(s3, bucket, ["p/", "p/a", "p/b/c", "p/b/d", "px", "q"])
    page = s3.list_objects_v2(Bucket=bucket, Prefix="p/", Delimiter="/")
    assert [entry["Key"] for entry in page["Contents"]] == ["p/", "p/a"]
    assert [entry["Prefix"] for entry in page["CommonPrefixes"]] == ["p/b/"]
    assert (page["Prefix"], page["Delimiter"]) == ("p/", "/")


def test_any_string_may_be_a_delimiter(s3, bucket):
    fill(s3, bucket, ["a--b", "a--c", "a-d", "x"])
    page = s3.list_objects_v2(Bucket=bucket, Delimiter="--")
    assert [entry["Prefix"] for entry in page["CommonPrefixes"]] == ["a--"]
    assert [entry["Key"] for entry in page["Contents"]] == ["a-d", "x"]


def test_prefixes_with_wildcards_of_sql_are_plain_text(s3, bucket):
    fill(s3, bucket, ["a_b/1", "axb/1", "a%b/1", "aaab/1"])
    assert keys_of(s3, bucket, Prefix="a_b/") == ["a_b/1"]
    assert keys_of(s3, bucket, Prefix="a%") == ["a%b/1"]
    page = s3.list_objects_v2(Bucket=bucket, Prefix="a_b", Delimiter="/")
    assert [entry["Prefix"] for entry in page["CommonPrefixes"]] == ["a_b/"]


def test_start_after_excludes_its_own_key(s3, bucket):
    fill(s3, bucket, ["a", "b", "c"])
    page = s3.list_objects_v2(Bucket=bucket, StartAfter="a")
    assert [entry["Key"] for entry in page["Contents"]] == ["b", "c"]
    assert page["StartAfter"] == "a"
    assert [entry["Key"] for entry in s3.list_objects(Bucket=bucket, Marker="b")["Contents"]] == ["c"]


def test_max_keys_zero_returns_an_empty_complete_page(s3, bucket):
    fill(s3, bucket, ["a"])
    page = s3.list_objects_v2(Bucket=bucket, MaxKeys=0)
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)


def test_page_that_holds_all_keys_is_not_truncated(s3, bucket):
    fill(s3, bucket, ["a", "b"])
    page = s3.list_objects_v2(Bucket=bucket, MaxKeys=2)
    assert (page["IsTruncated"], page["KeyCount"], page["MaxKeys"]) == (False, 2, 2)
    assert "NextContinuationToken" not in page


def test_max_keys_above_a_thousand_is_accepted(raw, bucket):
    answer = raw.request("GET", raw.path(bucket), query={"list-type": "2", "max-keys": "5000"})
    assert answer.status == 200
    assert answer.xml().findtext("MaxKeys") in ("1000", "5000"), "S3 shows its own bound, others echo what was asked"


def test_owner_is_listed_with_fetch_owner(s3, bucket):
    fill(s3, bucket, ["a"])
    assert "Owner" not in s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"][0]["Owner"]["ID"]
    assert s3.list_objects(Bucket=bucket)["Contents"][0]["Owner"]["ID"]


def test_entries_show_etag_size_class_and_date(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a", Body=body_of(10))
    for listing in (s3.list_objects, s3.list_objects_v2):
        entry = listing(Bucket=bucket)["Contents"][0]
        assert (entry["ETag"], entry["Size"]) == (etag_of(body_of(10)), 10)
        assert entry["StorageClass"] == "STANDARD"
        assert entry["LastModified"].year >= 2024


def test_url_encoding_covers_every_name_in_the_answer(raw, s3, bucket):
    fill(s3, bucket, ["p q/é+1", "p q/é+2", "p q/é+/x", "p q/\x01"])
    query = {"list-type": "2", "encoding-type": "url", "prefix": "p q/", "delimiter": "/", "start-after": "p q/\x00"}
    listing = raw.request("GET", raw.path(bucket), query=query).xml()
    assert listing.findtext("EncodingType") == "url"
    keys = [element.text for element in listing.iter("Key")]
    assert [key.replace("+", " ").count("%C3%A9") for key in keys] == [0, 1, 1]
    assert any(key.endswith("%2B1") for key in keys) and any(key.endswith("%01") for key in keys)
    assert all(" " not in element.text for name in ("Key", "Prefix") for element in listing.iter(name))
    assert listing.findtext("Delimiter") in ("/", "%2F")


def test_without_url_encoding_names_are_plain(raw, s3, bucket):
    fill(s3, bucket, ["a b+c&<d>"])
    listing = raw.request("GET", raw.path(bucket), query={"list-type": "2"}).xml()
    assert [element.text for element in listing.iter("Key")] == ["a b+c&<d>"]


def test_listing_of_a_missing_bucket_is_404(s3):
    with refused("NoSuchBucket", 404):
        s3.list_objects_v2(Bucket="no-such-bucket-anywhere")


def test_a_forged_continuation_token_is_refused(s3, bucket, s3o_only):
    with refused("InvalidArgument", 400):
        s3.list_objects_v2(Bucket=bucket, ContinuationToken="\x01 not a token")
