"""References to secrets in a manifest: three plain names, and the field that receives the value.

Where a configuration of another program has the value itself, its key says so: `is_secret`.

No text of a manifest leads out of the places of secrets: a name is one part of a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from dataflow_assets.spec import Excludes, Spec

PART = re.compile(r"(?!\.$|\.\.)[A-Za-z0-9._-]{1,253}")  # Kubernetes' own rule for keys
_SECRET = re.compile(
    r"secret|password|passphrase|passwd|token|credential|api[._-]?key|access[._-]?key|private"
    r"|sasl\.jaas",
    re.IGNORECASE,
)


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

    @property
    def label(self) -> str:
        """Returns what stands for the value in names that are known without it: `name/key`."""
        return "/".join(part for part in (self.namespace, self.name, self.key) if part)


class VariableRef(SecretRef):
    """Points at an environment variable, of which there may be several spellings.

    Languages make it, for files that name variables; a manifest names Secrets.
    """

    variables: tuple[str, ...]
    """The first one that is set counts."""

    @classmethod
    def of(cls, *variables: str) -> VariableRef:
        """A reference that people know by its first spelling.

        Raises:
            ValueError: one of them is not a valid name of a variable.
        """
        if not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in variables):
            raise ValueError("a variable's name has letters a-z, digits and `_`")
        return cls(name="environment", key=variables[0], variables=variables)


@dataclass(frozen=True)
class Fills(Excludes):
    """Marks a `...SecretRef` field: the field that receives the secret's value.

    A value beside it would be ignored, and a reader of the manifest would not know.
    """

    required: bool = False


@dataclass(frozen=True)
class SecretKey:
    """One key of one Secret, its namespace known."""

    namespace: str
    name: str
    key: str

    @property
    def secret(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def place(self) -> str:
        return f"{self.secret}/{self.key}"


@dataclass(frozen=True)
class Absent:
    """A place that does not have the Secret: the next place is asked."""

    reason: str


def is_secret(key: str) -> bool:
    """Returns whether the value of a key must not be shown, as far as the key's name can say so."""
    return _SECRET.search(key) is not None
