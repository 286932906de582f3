"""Object stores that do not answer: what is said instead of the words of the clients."""

from __future__ import annotations

import pytest

from dataflow_assets.sdk.causes import StoreSilent, store_silence
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
