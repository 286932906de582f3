"""jsonParse: makes values of fields that hold JSON as text."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.paths.path import Path, Writable
from dataflow_assets.records.record import NotJson, parse
from dataflow_assets.records.step import Apply, Change, Context, Example, Origins, Step, on_body


class JsonParse(Step):
    """Turns text that is JSON into the value it describes; `jsonString` is the way back.

    Fields that are missing, or that hold no text, stay as they are.
    """

    type: ClassVar[str] = "jsonParse"
    addition: ClassVar[bool] = True
    fields: tuple[Writable, ...] = Field(min_length=1)
    """Paths of the texts."""
    on_error: Literal["reject", "keep"] = "reject"
    """What happens to text that is not JSON, empty text too: `reject` rejects the record, `keep`
    leaves the text."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "an object",
            {"fields": ["u.doc"]},
            '{"u":{"doc":"{\\"a\\":[1,2]}"},"k":1}',
            ('{"u":{"doc":{"a":[1,2]}},"k":1}',),
        ),
        Example(
            "any value; numbers keep their digits",
            {"fields": ["a", "b", "c"]},
            '{"a":" 12345678901234567890 ","b":"null","c":"1.10"}',
            ('{"a":12345678901234567890,"b":null,"c":1.10}',),
        ),
        Example("one level only", {"fields": ["$.a"]}, '{"a":"\\"{}\\""}', ('{"a":"{}"}',)),
        Example(
            "a value that is not text, or missing, stays",
            {"fields": ["a", "b", "c", "d"]},
            '{"a":{"x":1},"b":null,"c":5}',
            ('{"a":{"x":1},"b":null,"c":5}',),
        ),
        Example("not JSON inside", {"fields": ["a"]}, '{"a":"{x"}', error="a: is not valid JSON"),
        Example("empty text", {"fields": ["a"]}, '{"a":""}', error="a: is not valid JSON"),
        Example(
            "kept as text",
            {"fields": ["a", "b"], "onError": "keep"},
            '{"a":"{x","b":"[1]"}',
            ('{"a":"{x","b":[1]}',),
        ),
        Example(
            "JSON that cannot be kept exactly",
            {"fields": ["a"]},
            '{"a":"[\\"\\\\ud800\\"]"}',
            error="a: JSON that cannot be kept exactly",
        ),
        Example("not JSON at all", {"fields": ["a"]}, "a=1", ("a=1",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        changes = [_parser(path, keep=self.on_error == "keep") for path in self.fields]
        return on_body(*changes)


def _parser(path: Path, *, keep: bool) -> Change:
    get, put = path.getter(), path.setter()

    def change(body: Any) -> Any:
        text = get(body)
        if not isinstance(text, str):
            return body
        try:
            return put(body, _value(text))
        except RejectedRecord as error:
            if keep:
                return body
            raise RejectedRecord("step", f"{path.text}: {error.reason}") from None

    return change


def _value(text: str) -> Any:
    value = parse(text.encode())
    if isinstance(value, NotJson):
        raise RejectedRecord("step", "is not valid JSON; onError: keep would leave the text")
    return value
