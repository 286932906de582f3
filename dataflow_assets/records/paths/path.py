"""Paths into a JSON value: the gjson dialect for reading, sjson for writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated, Any

from pydantic import AfterValidator, WrapValidator
from typing_extensions import override

from dataflow_assets.records.paths.parts import Glob, Key, Part, Unreadable, read
from dataflow_assets.records.paths.reading import reader
from dataflow_assets.records.paths.writing import remover, setter
from dataflow_assets.records.record import at
from dataflow_assets.spec import Written


@dataclass(frozen=True)
class Path(Written):
    """A path as the manifest writes it, without `$.`; equal texts are equal paths."""

    text: str

    @classmethod
    @override
    def parse(cls, text: str, column: int = 1) -> Path:
        """Raises ValueError with the column of what cannot be read, `column` being its first."""
        bare = text.removeprefix("$")
        bare = bare.removeprefix(".") if bare != text else bare
        if not bare:
            raise ValueError("is empty; write a path such as a.b")
        try:
            read(bare)
        except Unreadable as error:
            at = column + len(text) - len(bare) + error.at
            raise ValueError(f"cannot be read at column {at}: {error.why}") from None
        # Read once more it must stay the same path: a key of its own `$` is kept by a backslash.
        return cls(f"\\{bare}" if bare.startswith("$") else bare)

    def _parts(self) -> tuple[Part, ...]:
        return read(self.text)

    @property
    def name(self) -> str:
        """The column's name in `select`: the last key, index or `#`; patterns stay as written."""
        keys = (p for p in reversed(self._parts()) if isinstance(p, Key | Glob) or p.text == "#")
        return next((part.text for part in keys), "_")

    @property
    def key(self) -> str | None:
        """The key of the body itself that it is; None for any other path."""
        first, *more = self._parts()
        plain = isinstance(first, Key) and first.index is None and not more
        return first.text if plain else None

    @property
    def top(self) -> str | None:
        """The body's own key under which it leads; None where a pattern may lead to several."""
        first, *_ = self._parts()
        return first.text if isinstance(first, Key) else None

    def getter(self) -> Callable[[Any], Any]:
        """Body -> the value there, or MISSING; of several matches the first.

        Raises RejectedRecord where `@fromstr` meets JSON that cannot be kept exactly.
        """
        get, name = reader(self._parts()), self.text
        return (lambda body: at(name, get, body)) if "@fromstr" in name else get

    def setter(self) -> Callable[[Any, Any], Any]:
        """(body, value) -> a body with the value there; the given body is left as it was.

        Raises RejectedRecord where a value other than null stands in the way that is no object, or
        no array under an index, and where an array would have to be filled up far past its end.
        """
        return setter(self._keys(), self.text)

    def remover(self) -> Callable[[Any], Any]:
        """Body -> a body without it; the very same object when there is nothing to remove."""
        return remover(self._keys())

    def check_writable(self) -> None:
        """Raises ValueError where nothing can be written: wildcards, `#`, queries, modifiers."""
        self._keys()

    def _keys(self) -> tuple[Key, ...]:
        parts = self._parts()
        keys = tuple(part for part in parts if isinstance(part, Key))
        if len(keys) < len(parts):
            other = next(part.text for part in parts if not isinstance(part, Key))
            allowed = "keys and indexes such as a.b or a.0"
            raise ValueError(f"{self.text} cannot be written: {other}; allowed: {allowed}")
        return keys


def _writable(path: Path) -> Path:
    path.check_writable()
    return path


Writable = Annotated[Path, AfterValidator(_writable)]
"""A path of an option that writes; one that cannot be written is a finding."""


def apart(why: str) -> WrapValidator:
    """For a mapping from paths: refuses one path twice, and one inside another, saying `why`."""

    def validate(given: Any, handler: Callable[[Any], Any]) -> Any:
        paths = handler(given)
        keys = {path._keys(): path.text for path in paths}  # noqa: SLF001 - its own module's
        if len(keys) < len(given):
            raise ValueError("names a path twice: with and without `$.` it is the same")
        for outer, inner in permutations(keys, 2):
            if inner[: len(outer)] == outer:
                raise ValueError(f"names {keys[inner]} inside of {keys[outer]}: {why}")
        return paths

    return WrapValidator(validate)
