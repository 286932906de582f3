"""Paths into a JSON value: the gjson dialect for reading, sjson for writing (reference 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dataflow_assets.records import MISSING


@dataclass(frozen=True)
class Path:
    """A path as the manifest writes it, with or without `$.`; equal texts are equal paths."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Path:
        """Raises ValueError with the position of what cannot be read."""
        stripped = text.removeprefix("$").removeprefix(".")
        if not stripped:
            raise ValueError("is empty: a path such as a.b is wanted")
        return cls(stripped)

    @property
    def name(self) -> str:
        """The last key: what `select` calls the column."""
        return self.text.rsplit(".", 1)[-1]

    def getter(self) -> Callable[[Any], Any]:
        """Body -> the value there, or MISSING; of several matches the first."""
        keys = self.text.split(".")

        def get(body: Any) -> Any:
            for key in keys:
                if not isinstance(body, dict) or key not in body:
                    return MISSING
                body = body[key]
            return body

        return get

    def setter(self) -> Callable[[Any, Any], Any]:
        """(body, value) -> a body with the value there; the given body is left as it was."""
        keys = self.text.split(".")

        def put(body: Any, at: int, value: Any) -> Any:
            if at == len(keys):
                return value
            inner = body if isinstance(body, dict) else {}
            return {**inner, keys[at]: put(inner.get(keys[at]), at + 1, value)}

        return lambda body, value: put(body, 0, value)

    def remover(self) -> Callable[[Any], Any]:
        """Body -> a body without it; the very same object when there is nothing to remove."""
        keys = self.text.split(".")

        def drop(body: Any, at: int) -> Any:
            if not isinstance(body, dict) or keys[at] not in body:
                return body
            if at == len(keys) - 1:
                return {key: value for key, value in body.items() if key != keys[at]}
            inner = drop(body[keys[at]], at + 1)
            return body if inner is body[keys[at]] else {**body, keys[at]: inner}

        return lambda body: drop(body, 0)

    def check_writable(self) -> None:
        """Raises ValueError where nothing can be written: wildcards, `#`, queries, modifiers."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())
