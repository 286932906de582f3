"""Output of the command line: results on stdout, everything about them on stderr.

An error is one sentence for people, and its traceback on demand; neither shows a secret.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from typing import Literal

from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.redaction import mask

LONGEST = 500
Style = Literal["error", "note", "place", "good"]
_CODES = {"error": "31", "note": "33", "place": "1", "good": "32"}


def out(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def err(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def paint(text: str, style: Style) -> str:
    """A piece of a line for stdout, in colour on a terminal; NO_COLOR turns that off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def sentence(error: BaseException, flows: Iterable[Flow] = ()) -> str:
    """The error as one sentence; one that is not of our own is marked as unexpected."""
    if isinstance(error, DataflowError):
        return mask(str(error), flows)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0][:LONGEST] if lines else "no message"
    return mask(f"unexpected {type(error).__name__}: {text} (--verbose shows where)", flows)


def trace(error: BaseException, flows: Iterable[Flow] = ()) -> str:
    return mask("".join(traceback.format_exception(error)), flows).rstrip()
