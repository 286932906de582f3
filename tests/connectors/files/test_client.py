"""What a sink relies on, on a disk and on S3."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataflow_assets.connectors.files import FilesSink
from dataflow_assets.connectors.files.errors import translate_errors
from dataflow_assets.errors import PermanentError, TransientError
from tests.connectors.files import driver


def test_of_many_who_put_a_new_file_one_succeeds(place: driver.Config) -> None:
    folder = driver.folder(place)
    contents = [str(number).encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda one: folder.put_new("_dataflow/log/1", one), contents))
    assert sorted(made) == [False] * 7 + [True]
    assert folder.read("_dataflow/log/1") == contents[made.index(True)]


def test_a_file_is_published_once_however_often_it_is_asked_for(place: driver.Config) -> None:
    folder = driver.folder(place)
    folder.put("_dataflow/staged/a", b"{}\n")
    for _ in range(2):
        folder.publish("_dataflow/staged/a", "a.jsonl")
    assert _seen(folder) == [("a.jsonl", 3)]
    folder.delete("a.jsonl")  # by whoever has read the file
    folder.publish("_dataflow/staged/a", "a.jsonl")
    assert _seen(folder) == []


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_copy_is_made_once_where_the_staged_file_was_not_deleted(place: driver.Config) -> None:
    """A copy anew would change the time of a file that was read."""
    folder = driver.folder(place)
    folder.put("_dataflow/staged/a", b"{}\n")
    folder.put("a.jsonl", b"{}\n")
    made = folder.stat("a.jsonl")
    time.sleep(1.1)  # times of S3 are seconds
    folder.publish("_dataflow/staged/a", "a.jsonl")
    assert folder.stat("a.jsonl") == made
    assert _seen(folder) == [("a.jsonl", 3)]


def _seen(folder: driver.Folder) -> list[tuple[str, int]]:
    return [(one.name, one.size) for one in folder.files()]


def test_a_folder_that_is_not_there_is_empty(place: driver.Config) -> None:
    folder = driver.folder(place)
    folder.check()
    assert folder.files() == []
    assert folder.files("_dataflow/log/x") == []
    assert folder.stat("a") is None
    folder.delete("a")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_missing_bucket_and_wrong_keys_are_named(place: driver.Config) -> None:
    for wrong, reason in (
        ({"path": f"s3://none-{uuid.uuid4().hex}/x"}, "create the bucket"),
        ({"secretAccessKey": "wrong"}, "check the credentials"),
        ({"accessKey": "nobody"}, "check the credentials"),
    ):
        options = FilesSink.model_validate(place | wrong)
        folder = driver.Folder(options)
        with pytest.raises(PermanentError, match=reason), translate_errors(options, "write to"):
            folder.check()
        if "path" not in wrong:  # the test store makes a bucket of whatever is put into it
            with pytest.raises(PermanentError, match=reason), translate_errors(options, "write to"):
                folder.put_new("a", b"")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_store_that_is_down_is_tried_again(place: driver.Config) -> None:
    options = FilesSink.model_validate(place | {"s3Endpoint": "http://127.0.0.1:1"})
    folder = driver.Folder(options)
    for attempt in (folder.check, lambda: folder.put_new("a", b"")):
        with pytest.raises(TransientError), translate_errors(options, "write to"):
            attempt()
