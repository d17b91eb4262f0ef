"""With a prefix such as Buckets/one, no object was known to be absent: the error repeats the name, and was taken for
the answer that a bucket is missing. With Azure, a missing container looked like one without objects."""

from __future__ import annotations

import pytest

from storage.bucket import Bucket, Unanswered, open_bucket
from tests.unit.storage.cold.servers import (
    BUCKET,
    NoContainerServer,
    answering,
    azure_credentials,
    credentials,
    s3_server,
)


def reads(bucket: Bucket) -> list[bytes | None]:
    return [bucket.get("absent"), bucket.get_range("absent", 0, 10)]


@pytest.mark.parametrize("prefix", ["Buckets/one", "NoSuchBucket"])
def test_an_absent_object_is_absent_whatever_the_prefix(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as endpoint:
        credentials(monkeypatch, endpoint)
        assert reads(open_bucket("s3", BUCKET, prefix)) == [None, None]


def test_a_missing_container_is_not_a_missing_object(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(NoContainerServer) as endpoint:
        azure_credentials(monkeypatch, endpoint)
        bucket = open_bucket("az", "container", None)
        for call in (lambda: bucket.get("a"), lambda: bucket.get_range("a", 0, 10), lambda: bucket.create("a", b"")):
            with pytest.raises(Unanswered, match="there is no bucket of that name"):
                call()
