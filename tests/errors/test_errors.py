"""An error that nobody translated: final where it is a mistake of code, and never quoted."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from dataflow_assets.errors import PermanentError, TransientError, outcome

SECRET = "hunter2"
OUTSIDE = [
    OSError(errno.EMFILE, f"Too many open files {SECRET}"),
    OSError(errno.ENOSPC, f"No space left on device {SECRET}"),
    MemoryError(SECRET),
    RuntimeError(f"can't start new thread {SECRET}"),
]
MISTAKES = [ValueError(SECRET), KeyError(SECRET), pa.ArrowInvalid(SECRET)]


def answer(error: Exception) -> object:
    def ask() -> None:
        raise error

    return outcome(ask)


@pytest.mark.parametrize("error", OUTSIDE, ids=repr)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    found = answer(error)
    assert isinstance(found, TransientError)
    assert type(error).__name__ in str(found)
    assert "mistake" not in str(found)
    assert SECRET not in str(found)
    assert found.__cause__ is error


@pytest.mark.parametrize("error", MISTAKES, ids=repr)
def test_a_mistake_of_code_is_final_and_its_text_is_left_out(error: Exception) -> None:
    found = answer(error)
    assert isinstance(found, PermanentError)
    assert str(found).startswith(f"unexpected {type(error).__name__} in ")
    assert str(found).endswith(", a mistake of dataflow-assets")
    assert SECRET not in str(found)


def test_the_systems_own_words_for_its_number_are_given() -> None:
    assert "unexpected OSError (Too many open files)" in str(answer(OUTSIDE[0]))
