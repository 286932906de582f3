"""An error of ours that ends a task meets the driver as the same error, wherever its class is."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import pytest

import dataflow_assets
from dataflow_assets.errors import (
    DataflowError,
    Finding,
    ManifestError,
    PermanentError,
    RejectedRecord,
    Stopped,
    TakenOver,
    TransientError,
)
from dataflow_assets.micro_batch.task_failures import TaskFailure, raise_gravest
from dataflow_assets.spark.jars import DownloadRefused

MAKE: dict[type[DataflowError], Callable[[], DataflowError]] = {
    Stopped: lambda: Stopped("stops here", "3", 17),
    ManifestError: lambda: ManifestError([Finding("f.yaml", 3, 1, "spec", "no sink")]),
    RejectedRecord: lambda: RejectedRecord("step", "no number", 2, "cast"),
    DownloadRefused: lambda: DownloadRefused("the repository is busy", 503),
}


def _family(kind: type[DataflowError]) -> Iterator[type[DataflowError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def _classes() -> list[type[DataflowError]]:
    for module in pkgutil.walk_packages(dataflow_assets.__path__, "dataflow_assets."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {
        kind for kind in _family(DataflowError) if kind.__module__.startswith("dataflow_assets")
    }
    return sorted(ours, key=lambda kind: (kind.__module__, kind.__qualname__))


def _travelled(error: DataflowError) -> DataflowError:
    sent = msgspec.msgpack.encode(TaskFailure.of(error))
    return msgspec.msgpack.decode(sent, type=TaskFailure).error()


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_arrives_as_what_it_was(kind: type[DataflowError]) -> None:
    error = MAKE[kind]() if kind in MAKE else kind("what failed, and where")
    error.branch, error.suspended = "postgresql:orders", ("one", "two")
    found = _travelled(error)
    assert type(found) is kind
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_connectors_define_errors_of_their_own() -> None:
    assert {kind.__name__ for kind in _classes()} > {"Fenced", "HeadMoved", "TakenOver"}


def test_a_class_that_the_driver_does_not_know_arrives_as_its_nearest_known_ancestor() -> None:
    sent = TaskFailure.of(TakenOver("taken by another run"))
    found = replace(sent, kinds=("elsewhere.OnlyInTheTask", *sent.kinds)).error()
    assert type(found) is TakenOver
    assert str(found) == "taken by another run"


@pytest.mark.parametrize(
    ("failed", "raised"),
    [
        ([TransientError("t"), PermanentError("p"), TakenOver("o")], TakenOver),
        ([TransientError("t"), PermanentError("p")], PermanentError),
        ([Stopped("h", "0", 1), TransientError("t")], TransientError),
        ([RejectedRecord("sink", "too long"), TransientError("t")], TransientError),
        ([Stopped("h", "0", 1)], Stopped),
        ([RejectedRecord("sink", "too long")], RejectedRecord),
    ],
)
def test_the_gravest_of_several_failures_is_raised(
    failed: list[DataflowError], raised: type[DataflowError]
) -> None:
    with pytest.raises(DataflowError) as caught:
        raise_gravest([TaskFailure.of(error) for error in failed])
    assert type(caught.value) is raised


def test_a_subclass_is_as_grave_as_what_it_is_a_kind_of() -> None:
    from dataflow_assets.connectors.kafka.producer import Fenced

    with pytest.raises(PermanentError):
        raise_gravest([TaskFailure.of(Fenced("f")), TaskFailure.of(PermanentError("p"))])
