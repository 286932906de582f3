"""What a manifest says of a secret: three plain names, and the field that receives the value.

No text of a manifest leads out of the places of secrets: a name is one part of a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator

from dataflow_assets.spec import Spec

PART = re.compile(r"(?!\.$|\.\.)[A-Za-z0-9._-]{1,253}")  # Kubernetes' own rule for keys


def _part(text: str) -> str:
    if PART.fullmatch(text) is None:
        raise ValueError(
            "must be one name: letters a-z, digits, `-`, `_` and `.`, no `/`, not `.` and not "
            "beginning with `..`, at most 253 characters"
        )
    return text


_Part = Annotated[str, AfterValidator(_part)]


class SecretRef(Spec):
    """Points at one key of one Secret; `namespace` defaults to the manifest's own."""

    name: _Part
    key: _Part
    namespace: _Part | None = None


class VariableRef(SecretRef):
    """Points at an environment variable of the process that opens the flow: `name` is its name.

    Of languages whose files name variables, such as `${env:NAME}`; DataFlow manifests do not.
    """

    key: _Part = "variable"

    @classmethod
    def of(cls, name: str) -> Self:
        """The reference to a variable. Raises ValueError for what is no name of one."""
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            raise ValueError("a variable's name has letters a-z, digits and `_`")
        return cls(name=name)


@dataclass(frozen=True)
class Fills:
    """Marks a `...SecretRef` field: the field that receives the secret's value."""

    field: str
    required: bool = False


@dataclass(frozen=True)
class Key:
    """One key of one Secret, its namespace known."""

    namespace: str
    name: str
    key: str

    @property
    def secret(self) -> str:
        """namespace/name, as people know it."""
        return f"{self.namespace}/{self.name}"

    @property
    def place(self) -> str:
        """namespace/name/key, as files are named."""
        return f"{self.secret}/{self.key}"


@dataclass(frozen=True)
class Absent:
    """A place that does not have the Secret: the next place is asked."""

    reason: str
