"""The Secret documents beside the manifests, as their files say now.

A flow that runs for hours has the mapping and not the values: a password that was replaced in the
file is found by whoever opens the flow again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.manifests.kubernetes import SecretDocument

Name = tuple[str, str]
"""(namespace, name)."""
Values = Mapping[str, SecretStr]


class SecretDocuments(Mapping[Name, Values]):
    """Secrets by (namespace, name); of duplicates the first one counts.

    A file that cannot be read any more, or lacks a Secret that it had, leaves the last known
    values: somebody may be in the middle of writing it.
    """

    def __init__(
        self,
        files: Sequence[Path],
        read: Callable[[Path], Iterable[SecretDocument]],
    ) -> None:
        """`read` parses a file where it has changed; it is a function of a module."""
        self._files, self._read = files, read
        self._known: dict[Name, Values] = {}

    @override
    def __getitem__(self, name: Name) -> Values:
        return self._now()[name]

    @override
    def __iter__(self) -> Iterator[Name]:
        return iter(self._now())

    @override
    def __len__(self) -> int:
        return len(self._now())

    @override
    def __repr__(self) -> str:
        return f"SecretDocuments({', '.join(map(str, self._files))})"

    def _now(self) -> Mapping[Name, Values]:
        secrets = [secret for file in self._files for secret in self._read(file)]
        self._known |= {secret.id: secret.values for secret in reversed(secrets)}
        return self._known
