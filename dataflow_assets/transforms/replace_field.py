"""replaceField: keeps or takes out fields, then renames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from dataflow_assets.records.paths.path import Path, Writable
from dataflow_assets.records.record import MISSING, Record
from dataflow_assets.records.step import Apply, Change, Context, Example, Origins, Step


def _pair(given: Any) -> Any:
    old, _, new = given.partition(":") if isinstance(given, str) else ("", "", "")
    if not (old.strip() and new.strip()):  # `old: new` without quotes is a mapping
        raise ValueError("must be old:new as one text; with a space after the colon, in quotes")
    return old.strip(), new.strip()


Pair = Annotated[tuple[Writable, Writable], BeforeValidator(_pair, json_schema_input_type=str)]


class ReplaceField(Step):
    """Keeps the fields of `include`, or takes out those of `exclude`; then renames, one by one.

    At least one of the three is needed. Nesting stays; objects that `exclude` or a rename emptied
    are taken out too. What is missing is skipped. Bodies that are not objects pass unchanged.
    """

    type: ClassVar[str] = "replaceField"
    include: Annotated[tuple[Writable, ...], Field(min_length=1)] = ()
    """Paths of what to keep; nothing else stays. Not together with `exclude`."""
    exclude: Annotated[tuple[Writable, ...], Field(min_length=1)] = ()
    """Paths of what to take out."""
    renames: Annotated[tuple[Pair, ...] | dict[Writable, Writable], Field(min_length=1)] = ()
    """`old:new` each, or (our addition) a mapping from old to new; a value at `new` is replaced."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "keep, then rename",
            {"include": ["u.id"], "renames": ["u.id:uid"]},
            '{"u":{"id":1,"n":2}}',
            ('{"uid":1}',),
        ),
        Example(
            "include keeps the nesting",
            {"include": ["$.u.id", "u.tags", "k"]},
            '{"u":{"id":1,"n":2,"tags":["a"]},"k":null,"x":3}',
            ('{"u":{"id":1,"tags":["a"]},"k":null}',),
        ),
        Example(
            "keys of digits, and places in arrays",
            {"include": ["years.2026.sum", "xs.1"]},
            '{"years":{"2025":{"sum":1},"2026":{"sum":2}},"xs":["a","b"]}',
            ('{"years":{"2026":{"sum":2}},"xs":[null,"b"]}',),
        ),
        Example("include finds nothing", {"include": ["a"]}, '{"b":1}', ("{}",)),
        Example(
            "exclude takes out what it emptied, and only that",
            {"exclude": ["u.a.b", "u.c"]},
            '{"u":{"a":{"b":1},"c":2},"e":{},"k":3}',
            ('{"e":{},"k":3}',),
        ),
        Example("a mapping", {"renames": {"a": "b.c"}}, '{"a":1,"k":2}', ('{"k":2,"b":{"c":1}}',)),
        Example(
            "a rename out of an object takes out the emptied object",
            {"renames": ["u.id:id", "v.id:w.id"]},
            '{"u":{"id":1},"v":{"id":2,"n":3}}',
            ('{"v":{"n":3},"id":1,"w":{"id":2}}',),
        ),
        Example(
            "the elements of an array keep their places, even empty ones",
            {"exclude": ["u.xs.0.a"]},
            '{"u":{"xs":[{"a":1},{"a":2}]}}',
            ('{"u":{"xs":[{},{"a":2}]}}',),
        ),
        Example(
            "one after another: the second sees what the first made",
            {"renames": ["a:b", "b:c"]},
            '{"a":1,"b":2}',
            ('{"c":1}',),
        ),
        Example(
            "missing or equal paths are skipped",
            {"renames": ["x:k", "k:k"]},
            '{"k":1}',
            ('{"k":1}',),
        ),
        Example(
            "into an object of the same name",
            {"renames": ["u:u.id"]},
            '{"u":1}',
            ('{"u":{"id":1}}',),
        ),
        Example(
            "a value in the way of the new name is not lost in silence",
            {"renames": ["u.id:k.id"]},
            '{"u":{"id":1},"k":2}',
            error="k.id: the parent is not an object",
        ),
        Example("no object", {"include": ["a"]}, '[{"b":1}]', ('[{"b":1}]',)),
        Example("not JSON", {"renames": ["a:b"]}, "a=1", ("a=1",)),
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.include and self.exclude:
            raise ValueError(
                "exclude and include cannot be used together: each says alone which fields stay"
            )
        if not (self.include or self.exclude or self.renames):
            raise ValueError("needs include, exclude or renames")
        return self

    @override
    def origins(self, column: str) -> Origins:
        sources: set[str | None] = {column}
        for old, new in reversed(self._pairs()):
            sources = {top for name in sources for top in _before(old, new, name)}
        if self.include:
            sources &= {path.top for path in self.include}
        sources -= {path.key for path in self.exclude}
        return None if None in sources else frozenset(name for name in sources if name)

    def _pairs(self) -> list[tuple[Path, Path]]:
        pairs = self.renames.items() if isinstance(self.renames, dict) else self.renames
        return [(old, new) for old, new in pairs if old != new]

    @override
    def compile(self, context: Context) -> Apply:
        changes = [_excluder(path) for path in self.exclude]
        if self.include:
            changes.append(_includer(self.include))
        changes += [_renamer(old, new) for old, new in self._pairs()]

        def apply(record: Record) -> Record:
            body = record.body
            if not isinstance(body, dict):
                return record
            for change in changes:
                body = change(body)
            return record if body is record.body else Record(body, record.metadata, record.route)

        return apply


def _before(old: Path, new: Path, column: str | None) -> set[str | None]:
    if new.top == column:
        return {old.top} if new.key == column else {old.top, column}
    return set() if old.key == column else {column}


def _includer(paths: tuple[Path, ...]) -> Change:
    keepers = [_keeper(path) for path in paths]

    def include(body: Any) -> Any:
        kept: Any = {}
        for keep in keepers:
            kept = keep(kept, body)
        return kept

    return include


def _keeper(path: Path) -> Callable[[Any, Any], Any]:
    """(what is kept so far, the body) -> the same with the body's value at the path."""
    get, put, remove = path.getter(), path.setter(), path.remover()
    digits = any(map(str.isdigit, path.text))

    def keep(kept: Any, body: Any) -> Any:
        value = get(body)
        if value is MISSING:
            return kept
        return put(_lead(kept, body, remove(body)) if digits else kept, value)

    return keep


def _lead(kept: Any, before: Any, after: Any) -> Any:
    """`kept` with the objects that lead to what `after` lacks.

    Where they are missing, the setter would take a key of digits for an index and make an array.
    """
    if not isinstance(before, dict):
        return [] if kept is MISSING else kept
    kept = {} if kept is MISSING else kept
    for key, value in after.items():
        if value is not before[key]:
            return {**kept, key: _lead(kept.get(key, MISSING), before[key], value)}
    return kept


def _renamer(old: Path, new: Path) -> Change:
    get, exclude, put = old.getter(), _excluder(old), new.setter()

    def rename(body: Any) -> Any:
        value = get(body)
        return body if value is MISSING else put(exclude(body), value)

    return rename


def _excluder(path: Path) -> Change:
    """Removes a path, and the objects that this emptied."""
    remove = path.remover()

    def exclude(body: Any) -> Any:
        left = remove(body)
        return body if left is body else _prune(body, left)

    return exclude


def _prune(before: Any, after: Any) -> Any:
    """`after` without the objects that are empty now and were not before.

    The remover copies along the path only: the one value that is another object now is on it.
    Elements of arrays stay, even empty ones: those behind them would move to other places.
    """
    if isinstance(after, list) and len(after) == len(before):
        return list(map(_prune, before, after))
    if after is before or not isinstance(after, dict):
        return after
    for key, value in after.items():
        if value is not before[key]:
            rest = {**after, key: _prune(before[key], value)}
            if rest[key] == {}:
                del rest[key]
            return rest
    return after
