"""Errors of Spark, each as one sentence: its errors are pages, and their advice is for others.

The JVM wraps errors in errors and names classes where it means reasons; Python workers send whole
tracebacks. Options of Spark that a message recommends do not exist in a manifest.
"""

from __future__ import annotations

import re

from dataflow_assets.errors import DataflowError, PermanentError, TransientError

LONGEST = 400
_OWN = re.compile(r"^dataflow_assets\.errors\.(PermanentError|TransientError): (.+)$")
_TRACE = re.compile(r"\n\s*(?:at [\w.$]+[(/]|\.\.\. \d+ more|JVM stacktrace:|Driver stacktrace:)")
_WRAPPERS = re.compile(
    r"^(?:\([\w.$]+\) |Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): "
    r"|\[[A-Z0-9_.]+\] |[\w.$]+(?:Exception|Error|Throwable)(?::\s+|$))",
    re.DOTALL,
)
_ROOT = re.compile(r"^Caused by: ([\w.$]+)(?:: (.+))?$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_DETAILS = re.compile(r'details = "(.*)"')
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}.*$", re.DOTALL)
_ADVICE = re.compile(r"^(?:If you |Consider |Please |To .*\bset\b)|\bspark\.\w", re.IGNORECASE)
# Where Spark names an option of its own, ours for the same.
_OURS = {"failOnDataLoss": "onDataLoss: continue goes on without what is gone"}


def sentence(error: BaseException) -> str:
    """The reason, without class names, traces and Spark's advice."""
    text = str(error)
    if "RETRIES_EXCEEDED" in text and error.__cause__ is not None:
        return sentence(error.__cause__)
    summary = _python(text) or _details(text) or _jvm(text) or type(error).__name__
    ours = [advice for option, advice in _OURS.items() if option in text]
    return "; ".join([summary[:LONGEST], *ours])


def task_failure(error: BaseException) -> DataflowError:
    """Returns what our own code has raised in a task, as it was; TransientError for all else."""
    if match := _OWN.match(_python(str(error))):
        kind = PermanentError if match[1] == PermanentError.__name__ else TransientError
        return kind(match[2])
    return TransientError(sentence(error))


def python_error(error: BaseException) -> str:
    """The class of the error that has ended a Python worker, as its traceback writes it."""
    return _python(str(error)).partition(":")[0].strip()


def _python(text: str) -> str:
    """The line that ends the last traceback: the first one that is not indented."""
    _, trace, after = text.rpartition(_TRACEBACK)
    lines = _TRACE.split(after)[0].splitlines() if trace else []
    return next((line for line in lines if line.strip() and not line[0].isspace()), "")


def _details(text: str) -> str:
    match = _DETAILS.search(text)
    return match[1] if match else ""


def _jvm(text: str) -> str:
    roots = _ROOT.findall(text)
    kind, words = roots[-1] if roots else ("", "")
    name = kind.rpartition(".")[2]
    return _unwrap(_TRACE.split(text)[0]) or _unwrap(words) or name


def _unwrap(text: str) -> str:
    """A message without what is wrapped around it, its advice left out."""
    text = text.strip()
    while match := _WRAPPERS.match(text):
        text = text[match.end() :].strip()
    text = _SQLSTATE.sub("", " ".join(text.split()))
    text = text.rpartition("Reason: ")[2]
    parts = [part for part in re.split(r"(?<=[.!?]) (?=[A-Z])", text) if not _ADVICE.search(part)]
    return " ".join(parts).removesuffix(".")
