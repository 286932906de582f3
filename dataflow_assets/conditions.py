"""Conditions of `when`, `filter` and `router` (reference 4.2), with our additions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dataflow_assets.records import Record


@dataclass(frozen=True)
class Condition:
    """A condition as the manifest writes it; equal texts are equal conditions."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Raises ValueError with the column of what cannot be read, and what is allowed there."""
        return cls(text)

    def reads(self) -> frozenset[str]:
        """The metadata keys it looks at."""
        return frozenset()

    def compile(self) -> Callable[[Record], bool]:
        """Record -> whether it holds; made once per task."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())
