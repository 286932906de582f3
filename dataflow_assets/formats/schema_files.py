"""Schemas that a manifest holds, or names by a file: read and judged."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from dataflow_assets.errors import PermanentError

LONGEST = 1024 * 1024  # bytes of a schema


class NamesFiles(ABC):
    """A source or sink whose manifest may name files with schemas."""

    @abstractmethod
    def file_problems(self) -> Iterator[tuple[str, str]]:
        """Returns what is wrong with the files that the manifest names.

        Called when manifests are loaded, each time anew: a file may have changed while its manifest
        has not.

        Returns:
            The key that names a file, and what is wrong with the file.
        """


def _beside_the_manifest(value: str | None, info: ValidationInfo) -> str | None:
    folder = (info.context or {}).get("folder")  # none where a model is made by itself
    return value if value is None or folder is None else str(Path(folder).absolute() / value)


SchemaPath = Annotated[str | None, AfterValidator(_beside_the_manifest)]
"""A path of a schema; a relative one begins in the folder of the manifest."""


def read(path: Path, key: str) -> str:
    """The text of a file; `key` is the option that names it.

    Raises PermanentError where it cannot be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
            raise PermanentError(f"{key}: {path} is not a schema's file")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise PermanentError(f"{key}: {path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise PermanentError(f"{key}: {path} cannot be read: {reason}") from None


@lru_cache(maxsize=512)
def problem(text: str) -> str:
    """Returns what is wrong with the text of an Avro schema; empty where it is one."""
    from dataflow_assets.formats.avro_schema import AvroSchema

    try:
        AvroSchema(text)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=512)
def default_problem(text: str) -> str:
    """Returns what is wrong with an Avro schema whose defaults are used; empty where nothing is."""
    from dataflow_assets.formats.avro_resolution import check_defaults
    from dataflow_assets.formats.avro_schema import AvroSchema

    if wrong := problem(text):
        return wrong
    try:
        check_defaults(AvroSchema(text))
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=512)
def json_problem(text: str) -> str:
    """Returns what is wrong with the text of a JSON Schema; empty where it is one."""
    from dataflow_assets.formats.json_schema import JsonSchemaEncoder

    try:
        JsonSchemaEncoder(text)
    except ValueError as error:
        return str(error)
    return ""


def _check_by(judge: Callable[[str], str]) -> AfterValidator:
    def check(value: str | None) -> str | None:
        if value and (wrong := judge(value)):
            raise ValueError(wrong)
        return value

    return AfterValidator(check)


AvroText = Annotated[str | None, _check_by(problem)]
AvroTextWithDefaults = Annotated[str | None, _check_by(default_problem)]
JsonSchemaText = Annotated[str | None, _check_by(json_problem)]
