"""Every kind of validation error as one sentence at the right place, without its value."""

from textwrap import dedent
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, SecretStr, field_validator, model_validator

from dataflow_assets.languages.common.documents import parse
from dataflow_assets.languages.common.wording import COLUMN_NAME, validate
from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Refused, Spec

SECRET = "hunter2-s3cret"
BOOLEANS = "(yes, no, on, off, true and false are)"


class Inner(Spec):
    password: SecretStr | None = None
    deep: int = 0


class Model(Spec):
    name: str
    size: int = Field(default=1, ge=0, le=10)
    share: float = 0.5
    flag: bool = False
    mode: Literal["earliest", "latest"] = "earliest"
    keys: tuple[Annotated[str, Field(pattern=COLUMN_NAME)], ...] = ()
    several: str | tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    text: str = Field(default="x", min_length=1)
    ref: SecretRef | None = None
    steps: Annotated[tuple[str, ...], Refused("steps", (None, [], ()))] = ()
    exclusive: str | None = None

    @field_validator("keys", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _rule(self) -> "Model":
        if self.exclusive:
            raise ValueError(f"exclusive excludes everything, also {self.exclusive}")
        return self


GOOD = [
    "name: n",
    "name: n\nkeys: a",
    "name: n\nkeys: [a, b]",
    "name: n\nsteps: []",
    "name: n\nshare: 1",
    "name: n\nsize:",
    "name: n\nseveral: [a]\ninners: [{deep: 1}]\nref: {name: a, key: b}",
]


@pytest.mark.parametrize("text", GOOD)
def test_good(text: str) -> None:
    (document,), _ = parse(text, "f")
    model, findings = validate(Model, document)
    assert findings == []
    assert model is not None


BAD = [
    ("name: 5", "1:7: name: must be text, got a number: put it in quotes"),
    (
        "name: no",
        f"1:7: name: must be text, got a boolean {BOOLEANS}: put it in quotes",
    ),
    ("size: 1", "1:1: name: is required"),
    ("name:", "1:1: name: is required, but has no value"),
    ("name: n\nsize: '1'", "2:7: size: must be a whole number, got text: remove the quotes"),
    ("name: n\nsize: yes", "2:7: size: must be a whole number, got a boolean"),
    ("name: n\nsize: 1.5", "2:7: size: must be a whole number, got a number"),
    ("name: n\nsize: 11", "2:7: size: must be at most 10"),
    ("name: n\nsize: -1", "2:7: size: must be at least 0"),
    ("name: n\nshare: '1'", "2:8: share: must be a number, got text: remove the quotes"),
    ("name: n\nflag: 'yes'", "2:7: flag: must be true or false, got text"),
    ("name: n\nflag: 1", "2:7: flag: must be true or false, got a number"),
    (
        "name: n\nmode: earlyest",
        "2:7: mode: is not one of the allowed values: earliest, latest; did you mean earliest?",
    ),
    (
        "name: n\nkeys: [a, '']",
        "2:11: keys[1]: must be the name of a column: not empty, and without the character NUL",
    ),
    (
        f'name: n\nkeys: "{SECRET}\\0"',
        "2:7: keys: must be the name of a column: not empty, and without the character NUL",
    ),
    (
        "name: n\nseveral: 5",
        "2:10: several: must be text or a list, got a number: put it in quotes",
    ),
    (
        "name: n\nseveral: [a, 5]",
        "2:14: several[1]: must be text, got a number: put it in quotes",
    ),
    (
        "name: n\nlabels:\n  a: 1",
        "3:6: labels.a: must be text, got a number: put it in quotes",
    ),
    (
        "name: n\ninner: [1]",
        "2:8: inner: must be a mapping, got a list: write `key: value`, without `- `",
    ),
    ("name: n\ninner:\n  deeep: 1", "3:3: inner.deeep: unknown key; did you mean deep?"),
    ("name: n\ninners:\n  - deeep: 1", "3:5: inners[0].deeep: unknown key; did you mean deep?"),
    ("name: n\ndeep: 1", "2:1: deep: unknown key; did you mean inner.deep?"),
    ("name: n\nSize: 1", "2:1: Size: unknown key; did you mean size?"),
    (
        "name: n\ninner:\n  zzz: 1",
        "3:3: inner.zzz: unknown key; allowed: password, deep",
    ),
    ("name: n\ntext: ''", "2:7: text: must not be empty"),
    ("name: n\nref: {name: a}", "2:1: ref.key: is required"),
    (
        f"name: n\ninner: {{password: {{x: {SECRET}}}}}",
        "2:19: inner.password: must be text, got a mapping",
    ),
    ("name: n\nsteps: [a]", "2:8: steps: not supported yet: steps"),
    (
        f"name: n\nexclusive: {SECRET}",
        "2:12: exclusive: exclusive excludes everything, also (value)",
    ),
    (f"name: n\n'a b {SECRET}': 1", "2:1: (key): unknown key; allowed: "),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_bad(text: str, expected: str) -> None:
    (document,), _ = parse(dedent(text), "f")
    model, findings = validate(Model, document)
    said = [str(finding).removeprefix("f:") for finding in findings]
    assert len(said) == 1
    assert said[0] == expected or (expected.endswith(": ") and said[0].startswith(expected))
    assert SECRET not in said[0]
    assert model is None


def test_all_at_once() -> None:
    text = "size: '1'\nshare: x\nflag: 3\nmood: 1\ninner: {deep: []}\n"
    (document,), _ = parse(text, "f")
    _, findings = validate(Model, document)
    assert [finding.path for finding in sorted(findings)] == [
        "name",
        "size",
        "share",
        "flag",
        "mood",
        "inner.deep",
    ]
