"""mask: writes asterisks over what nobody should read."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from typing_extensions import override

from dataflow_assets.records.paths.path import Writable
from dataflow_assets.records.record import MISSING, Record, at, text_form
from dataflow_assets.records.step import Apply, Context, Example, Origins, Step

_SHORT = 3  # characters written when the length is not kept


class Mask(Step):
    """Replaces each listed field by a mask, whatever its type was: the result is text.

    Missing fields are skipped and not made. A whole object or array can be masked.
    """

    type: ClassVar[str] = "mask"
    fields: tuple[Writable, ...] = Field(min_length=1)
    """The fields to mask."""
    mask_char: str = Field(default="*", min_length=1)
    """What to write."""
    keep_length: bool = False
    """Write it once for each byte of the value's text, so that the length still shows; else three
    times."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example(
            "any type becomes text",
            {"fields": ["pin"], "keepLength": True, "maskChar": "#"},
            '{"pin":12345}',
            ('{"pin":"#####"}',),
        ),
        Example(
            "the length is hidden by default",
            {"fields": ["password"], "maskChar": "X"},
            '{"password":"verylongpassword123"}',
            ('{"password":"XXX"}',),
        ),
        Example(
            "nested, several, with and without `$.`; the missing one is not made",
            {"fields": ["user.password", "$.card", "gone"], "keepLength": True},
            '{"user":{"password":"secret","id":7},"card":"1234567890123456"}',
            ('{"user":{"password":"******","id":7},"card":"****************"}',),
        ),
        Example(
            "length counts bytes of UTF-8",
            {"fields": ["n"], "keepLength": True},
            '{"n":"Zoë"}',
            ('{"n":"****"}',),
        ),
        Example(
            "null has no length; an object has that of its JSON",
            {"fields": ["a", "b"], "keepLength": True},
            '{"a":null,"b":{"c":1}}',
            ('{"a":"","b":"*******"}',),
        ),
        Example(
            "null is masked too: nobody learns that there was nothing",
            {"fields": ["a"]},
            '{"a":null}',
            ('{"a":"***"}',),
        ),
        Example(
            "a number that nobody could write out",
            {"fields": ["u.n"], "keepLength": True},
            '{"u":{"n":1e999999}}',
            error="u.n: a number of more than 4300 digits",
        ),
        Example("text that is not JSON passes", {"fields": ["a"]}, "hello", ("hello",)),
    )

    @override
    def origins(self, column: str) -> Origins:
        return frozenset({column})

    @override
    def compile(self, context: Context) -> Apply:
        plan = [(path.text, path.getter(), path.setter()) for path in dict.fromkeys(self.fields)]
        char, short, keep = self.mask_char, self.mask_char * _SHORT, self.keep_length

        def apply(record: Record) -> Record:
            body = record.body
            for name, get, put in plan:
                value = get(body)
                if value is not MISSING:
                    length = len(at(name, text_form, value).encode()) if keep else 0
                    body = put(body, char * length if keep else short)
            unchanged = body is record.body
            return record if unchanged else Record(body, record.metadata, record.route)

        return apply
