"""camelCase: renames keys from `user_id` to `UserId`."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from dataflow_assets.records.key_case import renamer
from dataflow_assets.records.step import Apply, Context, Example, Step, on_body


class CamelCase(Step):
    """Renames keys to camel case with a capital first letter: `user_id` becomes `UserId`.

    Two keys of one object that would get the same name (`a_b` and `aB`) reject the record.
    """

    type: ClassVar[str] = "camelCase"
    deep: bool = False
    """Also the keys of nested objects, inside arrays too; else those of the body itself."""

    examples: ClassVar[tuple[Example, ...]] = (
        Example("a capital for each word", {}, '{"user_id":1}', ('{"UserId":1}',)),
        Example("the body's own keys", {}, '{"a_b":{"c_d":1}}', ('{"AB":{"c_d":1}}',)),
        Example(
            "nested keys too, in arrays as well",
            {"deep": True},
            '{"a_b":{"c_d":1},"list":[{"e_f":2},3]}',
            ('{"AB":{"CD":1},"List":[{"EF":2},3]}',),
        ),
        Example(
            "the rest of a word stays as it is",
            {},
            '{"userID":1,"HTTP_url":2,"v_2":3,"full name":4}',
            ('{"UserID":1,"HTTPUrl":2,"V2":3,"Full name":4}',),
        ),
        Example(
            "outer underscores go, a key of nothing else stays",
            {},
            '{"_id_":1,"a__b":2,"__":3,"":4}',
            ('{"Id":1,"AB":2,"__":3,"":4}',),
        ),
        Example("not JSON", {"deep": True}, "a_b=1", ("a_b=1",)),
        Example(
            "two keys with one name: neither value is lost in silence",
            {},
            '{"_id":1,"id":2}',
            error="the keys _id and id would both become Id",
        ),
    )

    @override
    def compile(self, context: Context) -> Apply:
        return on_body(renamer(camel_case, deep=self.deep))


def camel_case(key: str) -> str:
    return "".join(part[0].upper() + part[1:] for part in key.split("_") if part) or key
