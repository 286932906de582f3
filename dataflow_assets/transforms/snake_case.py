"""snakeCase: renames keys from `userId` to `user_id`."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from dataflow_assets.records.key_case import renamer
from dataflow_assets.records.step import Apply, Context, Example, Step, on_body


class SnakeCase(Step):
    """Renames keys to snake case: `userId` becomes `user_id`; spaces and hyphens stay.

    Two keys of one object that would get the same name (`aB` and `a_b`) reject the record.
    """

    type: ClassVar[str] = "snakeCase"
    deep: bool = False
    """Also the keys of nested objects, inside arrays too; else those of the body itself."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("the body's own keys", {}, '{"aB":{"cD":1}}', ('{"a_b":{"cD":1}}',)),
        Example(
            "nested keys too, in arrays as well",
            {"deep": True},
            '{"aB":{"cD":1},"list":[{"eF":2},3,[{"gH":4}]]}',
            ('{"a_b":{"c_d":1},"list":[{"e_f":2},3,[{"g_h":4}]]}',),
        ),
        Example(
            "abbreviations, digits and all capitals",
            {},
            '{"XMLHttpRequest":1,"userID123":2,"USERNAME":3,"v2Beta":4}',
            ('{"xml_http_request":1,"user_id123":2,"username":3,"v2_beta":4}',),
        ),
        Example(
            "spaces and hyphens stay",
            {},
            '{"Full Name":1,"X-Id":2,"":3}',
            ('{"full name":1,"x-id":2,"":3}',),
        ),
        Example("an array at the top has no keys of its own", {}, '[{"aB":1}]', ('[{"aB":1}]',)),
        Example("its objects have", {"deep": True}, '[{"aB":1}]', ('[{"a_b":1}]',)),
        Example("not JSON", {"deep": True}, "aB=1", ("aB=1",)),
        Example(
            "two keys with one name: neither value is lost in silence",
            {},
            '{"userId":1,"user_id":2}',
            error="the keys userId and user_id would both become user_id",
        ),
        Example(
            "the same further down",
            {"deep": True},
            '{"a":[{"ID":1,"id":2}]}',
            error="the keys ID and id would both become id",
        ),
    )

    @override
    def compile(self, context: Context) -> Apply:
        return on_body(renamer(snake_case, deep=self.deep))


def snake_case(key: str) -> str:
    """`_` where a word begins, then all in lower case. A run of capitals is one word."""
    parts = []
    for before, letter, after in zip(f" {key}", key, f"{key[1:]} ", strict=False):
        starts = before.islower() or before.isdecimal() or (before.isupper() and after.islower())
        parts.append(f"_{letter}" if letter.isupper() and starts else letter)
    return "".join(parts).lower()
