"""hash: replaces values by their SHA-256, or writes one for several."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator
from typing_extensions import override

from dataflow_assets.records.paths.path import Path
from dataflow_assets.records.record import MISSING, at, encode, text_form
from dataflow_assets.records.step import Apply, Change, Context, Example, Origins, Step, on_body

_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
_FIVE = "ef2d127de37b942baad06145e54b0c619a1f22327b2ebbcfbec78f5564afe39d"
_SEVERAL = "923b5bafac5b06361be294256b7d9b581bc12b665459bf3e6f94c2fc3037c09c"


class Hash(Step):
    """Hashes fields: SHA-256 of their text, in UTF-8, as 64 hexadecimal digits in lower case.

    Text is hashed as it is, numbers in their shortest form (5.0 as `5`), `true`, `false`, objects
    and arrays as JSON. Null stays null and what is missing is skipped. A hash of what can be
    guessed (a telephone number) can be undone by guessing: `mask` or `remove` hide it.
    """

    type: ClassVar[str] = "hash"
    addition: ClassVar[bool] = True
    fields: tuple[Path, ...] = Field(min_length=1)
    """Paths of what to hash; without `target` each hash takes its value's place."""
    target: Path | None = None
    """Where one hash of all `fields` goes; they stay. Of several it is that of the JSON array of
    their texts, compact, with null for what is null or missing; of none nothing is written."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "in place",
            {"fields": ["u.mail"]},
            '{"u":{"mail":"abc","n":1}}',
            (f'{{"u":{{"mail":"{_ABC}","n":1}}}}',),
        ),
        Example(
            "equal texts have equal hashes: 5, 5.0 and the text 5",
            {"fields": ["a", "b", "c"]},
            '{"a":5,"b":5.0,"c":"5"}',
            (f'{{"a":"{_FIVE}","b":"{_FIVE}","c":"{_FIVE}"}}',),
        ),
        Example(
            "null stays null, what is missing is skipped",
            {"fields": ["a", "b"]},
            '{"a":null}',
            ('{"a":null}',),
        ),
        Example(
            'one for several: of ["7","a",null]',
            {"fields": ["id", "$.u.n", "gone"], "target": "meta.key"},
            '{"id":7,"u":{"n":"a"}}',
            (f'{{"id":7,"u":{{"n":"a"}},"meta":{{"key":"{_SEVERAL}"}}}}',),
        ),
        Example(
            "one for one: as in place, beside it",
            {"fields": ["id"], "target": "key"},
            '{"id":"abc"}',
            (f'{{"id":"abc","key":"{_ABC}"}}',),
        ),
        Example(
            "none of them is there: nothing is written",
            {"fields": ["a", "b"], "target": "key"},
            '{"a":null,"c":1}',
            ('{"a":null,"c":1}',),
        ),
        Example(
            "a number that nobody could write out",
            {"fields": ["u.n"]},
            '{"u":{"n":1e999999}}',
            error="u.n: a number of more than 4300 digits",
        ),
        Example("not JSON", {"fields": ["a"]}, "a=1", ("a=1",)),
    )

    @model_validator(mode="after")
    def _writable(self) -> Self:
        name, paths = ("target", (self.target,)) if self.target else ("fields", self.fields)
        for path in paths:
            try:
                path.check_writable()
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self

    @override
    def origins(self, column: str) -> Origins:
        if self.target is None or self.target.top != column:
            return frozenset({column})
        tops = [path.top for path in self.fields]
        beside = {column} if self.target.key is None else set[str]()
        return None if None in tops else frozenset(top for top in tops if top) | beside

    @override
    def compile(self, context: Context) -> Apply:
        if self.target:
            changes = [_combine(self.fields, self.target)]
        else:
            changes = [_in_place(path) for path in self.fields]
        return on_body(*changes)


def _in_place(path: Path) -> Change:
    get, put = _text(path), path.setter()

    def change(body: Any) -> Any:
        text = get(body)
        return body if text is None else put(body, _sha256(text.encode()))

    return change


def _combine(paths: tuple[Path, ...], target: Path) -> Change:
    getters, put = [_text(path) for path in paths], target.setter()

    def change(body: Any) -> Any:
        texts = [get(body) for get in getters]
        if texts == nothing:
            return body
        raw = encode(texts) if len(texts) > 1 else str(texts[0]).encode()
        return put(body, _sha256(raw))

    nothing = [None] * len(paths)
    return change


def _text(path: Path) -> Callable[[Any], str | None]:
    name, get = path.text, path.getter()

    def text(body: Any) -> str | None:
        value = get(body)
        return None if value is None or value is MISSING else at(name, text_form, value)

    return text


def _sha256(raw: bytes) -> str:
    return sha256(raw).hexdigest()
