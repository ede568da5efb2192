"""Where the cache may be, and what is refused."""

import pytest

from harness.config.places import BucketPlace, bucket_place, full_place
from harness.errors import BadInput


@pytest.mark.parametrize("path", ["outputs/cache", "/a/b", "s3", "s3/b", "./s3:x", "a b", "한국어/캐시", "c:b"])
def test_folders(path):
    assert bucket_place(path) is None
    assert full_place(path).endswith(path.removeprefix("./"))


@pytest.mark.parametrize(
    ("path", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket-1/a/b", "my.bucket-1", "a/b"),
        ("s3://bucket/검색 실험/", "bucket", "검색 실험"),
    ],
)
def test_buckets(path, bucket, prefix):
    assert bucket_place(path) == BucketPlace(bucket, prefix)
    assert full_place(path) == path.rstrip("/")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("S3://bucket/a", "write s3://bucket/a"),
        ("s3a://bucket/a", "write s3://bucket/a"),
        ("s3:/bucket/a", "write s3://bucket/a"),
        ("gs://bucket/a", "gs:// is not supported"),
        ("abfs://bucket/a", "abfs:// is not supported"),
        ("https://server/bucket", "https:// is not supported.*AWS_ENDPOINT_URL"),
        ("file:///tmp/x", "file:// is not supported"),
        ("s3://AKIA:hidden@bucket/a", "credentials come from the environment"),
        ("s3://bucket/a?key=hidden", "credentials come from the environment"),
        ("s3://bucket:hidden/a", "credentials come from the environment"),
        ("s3://bucket/a#hidden", "credentials come from the environment"),
    ],
)
def test_other_addresses_are_refused(path, message):
    with pytest.raises(BadInput, match=message) as raised:
        bucket_place(path)
    assert "hidden" not in str(raised.value)
