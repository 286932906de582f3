"""Object stores that do not answer, or take no files: what is said of them."""

from __future__ import annotations

import pytest

from dataflow_assets.sdk.causes import StoreSilent, no_room, store_silence
from dataflow_assets.sdk.conditional_put import Keys, ObjectStore, put_new

RESOLVED = (
    "When listing objects under key 'a/' in bucket 'lake': AWS Error NETWORK_CONNECTION during "
    "ListObjectsV2 operation: curlCode: 6, Could not resolve hostname; Details: Could not resolve "
    "host: no.such.host"
)
DENIED = "When reading 'a' in bucket 'lake': AWS Error ACCESS_DENIED during HeadObject operation"


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("http://no.such.host:8333", "no.such.host:8333"),
        ("https://user:secret@no.such.host/path", "no.such.host:443"),
        (None, "AWS"),
    ],
)
def test_the_store_and_the_reason_are_named(endpoint: str | None, place: str) -> None:
    found = store_silence(OSError(RESOLVED), endpoint)
    assert f"no answer from the object store at {place}: Could not resolve hostname; check" in str(
        found
    )


def test_an_answer_is_no_silence() -> None:
    assert store_silence(OSError(DENIED), None) is None


def test_a_put_that_reaches_nobody_says_so() -> None:
    store = ObjectStore("http://127.0.0.1:1", keys=Keys("a", "b"))
    with pytest.raises(StoreSilent, match=r"store at 127\.0\.0\.1:1: Connection refused; check"):
        put_new(store, "lake/a", b"")


@pytest.mark.parametrize(
    "text",
    [
        (
            "When uploading part for key 'a' in bucket 'lake': AWS Error INTERNAL_FAILURE during "
            "UploadPart operation: We encountered an internal error, please try again."
        ),
        (
            "When completing multiple part upload: AWS Error UNKNOWN (HTTP status 507) during "
            "CompleteMultipartUpload operation: Unable to parse ExceptionName: XMinioStorageFull"
        ),
        (
            "AWS Error UNKNOWN (HTTP status 403) during PutObject operation: Unable to parse "
            "ExceptionName: QuotaExceeded Message: "
        ),
        "PUT http://127.0.0.1:9000/lake/a was answered with HTTP 500: <Error>",
    ],
)
def test_a_store_that_takes_no_file_may_have_no_room(text: str) -> None:
    assert "; an object store without room answers like this: check its disk" in no_room(text)


@pytest.mark.parametrize(
    "text",
    [
        DENIED,
        RESOLVED,
        "When reading 'a': AWS Error INTERNAL_FAILURE during GetObject operation: try again",
    ],
)
def test_what_fails_for_another_reason_is_no_lack_of_room(text: str) -> None:
    assert no_room(text) == ""
