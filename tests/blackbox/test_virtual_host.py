"""Virtual-host style with a configured domain: the bucket may be in the host name or in the path."""

import base64
import hashlib

from raw_client import assert_refused
from s3_checks import body_of, keys_of


def test_bucket_name_is_accepted_in_the_host_name(own_server):
    server = own_server()
    server.config["server"]["domain"] = "s3.test"
    server.start()
    raw, s3 = server.raw(), server.s3()
    s3.create_bucket(Bucket="my-bucket")
    host = {"Host": f"my-bucket.s3.test:{server.port}"}
    key = "/a/my-bucket/k%20%2B"
    assert raw.request("PUT", key, headers=host, body=body_of(100)).status == 200
    assert raw.request("GET", key, headers=host).body == body_of(100)
    assert keys_of(s3, "my-bucket") == ["a/my-bucket/k +"]
    listing = raw.request("GET", "/", headers=host, query={"list-type": "2"})
    assert [element.text for element in listing.xml().iter("Key")] == ["a/my-bucket/k +"]
    plain = raw.request("GET", f"/my-bucket{key}", headers={"Host": f"s3.test:{server.port}"})
    assert plain.body == body_of(100)
    large = body_of(9_000_000)
    md5 = {"Content-MD5": base64.b64encode(hashlib.md5(large).digest()).decode()}
    assert raw.request("PUT", "/large", headers={**host, **md5}, body=large).status == 200
    assert raw.request("GET", "/large", headers=host).body == large
    missing = raw.request("GET", "/k", headers={"Host": f"no-such-bucket.s3.test:{server.port}"})
    assert_refused(missing, 404, "NoSuchBucket")
