"""Conditions: every rule of the reference's section 4.2, our additions, every error's column."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.chain import Chain, Transformation
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.record import Record, parse
from dataflow_assets.records.step import Context, Step
from dataflow_assets.spec import Spec
from dataflow_assets.transforms.filter import Filter
from dataflow_assets.transforms.remove import Remove
from dataflow_assets.transforms.select import Select
from tests.examples import examples

BODY = """
{"n": 5, "f": 5.0, "big": 12345678901234567890123, "small": 0.1, "e": 1e3, "zero": 0, "fzero": 0.0,
 "neg": -3, "s": "paid", "empty": "", "false_text": "false", "true_text": "true", "num_text": "10",
 "yes": true, "no": false, "none": null, "obj": {}, "arr": [], "list": [1, "a"],
 "a": {"b": "x y", "it": "it's", "quote": "say \\"hi\\"", "back": "a\\\\b"},
 "items": [{"k": "v", "p": 3}, {"k": "w y", "p": 10}], "metadata": {"topic": "body"},
 "a=b": 1, "first name": "Tom", "spaced": " 7 "}
"""
METADATA: dict[str, Any] = {
    "topic": "orders",
    "offset": 0,
    "partition": 3,
    "key": "",
    "nothing": None,
    "a.b": "flat",
    "timestamp": datetime(2026, 7, 20, 12, 0, 0, 250_000, timezone(timedelta(hours=2))),
    "whole": datetime(2026, 7, 20, 10, tzinfo=UTC),
    "headers": {"h": "1"},
}
RECORD = Record(parse(BODY.encode()), METADATA)

TRUE = [
    # truth
    "$.s", "$.yes", "$.n", "$.f", "$.neg", "$.small", "$.obj", "$.arr", "$.list", "$.true_text",
    "s", "a.b", "$s",
    # comparison on text form, as strings
    "$.n == 5", "$.n == '5'", '$.n == "5"', "$.f == 5", "$.e == 1000", "$.small == 0.1",
    "$.big == 12345678901234567890123", "$.yes == true", "$.no == false", "$.no != true",
    "$.none == ''", "$.none != 'a'", "$.empty == ''", "$.arr == []", "$.list == '[1,\"a\"]'",
    "$.s == paid", "$.s=='paid'", "$.s== 'paid'", "$.s =='paid'", "$.s != 'open'",
    "$.f != 5.0", "$.n != 05",
    # negation
    "!$.gone", "!$.zero", "! $.zero", "!!$.s", "!$.gone == 'x'", "!$.gone != 'x'", "!$.s == 'open'",
    "!($.s == 'open')", "!$.none", "!$.empty", "!$.false_text", "!$.fzero", "!$.no",
    # and, or, groups
    "$.s && $.n", "$.zero || $.n", "$.zero && $.zero || $.n", "$.n || $.zero && $.zero",
    "$.n && ($.zero || $.s)", "!($.zero || $.no)", "(($.n))", "$.s&&$.n", "$.zero||$.n",
    "$.n && $.s && $.yes", "$.zero || $.no || $.yes", "(!$.zero)&&(!$.no)", "($.s=='paid')",
    # quoting
    "$.a.b == 'x y'", '$.a.it == "it\'s"', r"$.a.it == 'it\'s'", "$.a.quote == 'say \"hi\"'",
    r'$.a.quote == "say \"hi\""', r"$.a.back == 'a\\b'", r"$.a.back == 'a\b'",
    "$.s != '&&' && $.s != '||' && $.s != '(' && $.s != ')'",
    # metadata
    "metadata.topic == orders", "metadata.partition == 3", "metadata.partition", "!metadata.offset",
    "!metadata.nothing", "!metadata.gone", "metadata.offset == 0", "metadata.key == ''",
    "!metadata.key", "metadata.a.b == 'flat'", "$.metadata.topic == 'body'", "metadata",
    "metadata.timestamp == '2026-07-20T10:00:00.25Z'", "metadata.whole == 2026-07-20T10:00:00Z",
    "metadata.headers", "metadata.headers == '{\"h\":\"1\"}'", "metadata.timestamp",
    # paths
    '$.items.#(k=="v").p == 3', '$.items.#(k == "w y").p == 10', "$.items.#(p>5).k == 'w y'",
    "$.items.# == 2", "$.items[1].p == 10", "$.items[*].p == [3,10]", r"$.a\=b == 1",
    "$.['a=b'] == 1", "$['first name'] == Tom", r"first\ name == 'Tom'", "$.items|# == 2",
    # additions
    "$.n < 6", "$.n <= 5", "$.n >= 5", "$.n > 4.999999999999999999999999999", "$.n > -1",
    "$.num_text > 9", "$.num_text < '11'", "$.big > 12345678901234567890122", "$.small < 0.11",
    "$.small >= 0.1", "$.spaced < 8", "$.n < 1e400", "!$.s < 5", "!$.s >= 5",
    "metadata.partition < 4",
    "$.s in [open, 'paid', 3]", "$.n in [1,5]", "$.n in['5']", "$.none in ['']", "!$.gone in ['']",
    "$.true_text in [true]", "$.s in ['a,b', paid ]", "metadata.topic in [orders]",
    "$.s =~ '^pa'", "$.s =~ 'i'", "$.s =~ ai", r"$.num_text =~ '^\d+$'", r"$.s =~ '^\\w+$'",
    "$.n =~ '5'", "!$.gone =~ ''", "$.none =~ '^$'", "$.a.it =~ \"'\"",
    "  $.s  ==  'paid'  ", "$.s\n&& $.n\n|| $.gone",
]  # fmt: skip

FALSE = [
    # a missing field fulfils nothing
    "$.gone", "$.gone == 'x'", "$.gone != 'x'", "$.gone == ''", "$.gone < 5", "$.gone >= 5",
    "$.gone in ['']", "$.gone =~ ''", "metadata.gone", "metadata.gone == ''",
    "metadata.gone != 'x'", "metadata.nothing == ''", "metadata.nothing != 'x'", "$.n.x",
    "$.items.5",
    # truth
    "$.zero", "$.fzero", "$.none", "$.empty", "$.false_text", "$.no", "!$.s", "!$.obj", "!$.arr",
    "metadata.offset", "metadata.key",
    # comparison
    "$.n == 5.0", "$.f == 5.0", "$.n == ' 5'", "$.s == Paid", "$.s != 'paid'", "$.none == null",
    "$.s == \"'paid'\"", "$.none == 'a'",
    "$.zero && $.n || $.no", "$.n && $.zero", "!($.n || $.zero)", "$.zero || $.no || $.none",
    "$.n && $.s && $.no",
    # no number, no order
    "$.s < 5", "$.s > 5", "$.yes >= 0", "$.none < 1", "$.none >= 0", "$.obj < 1", "$.empty < 1",
    "$.n < 5", "$.n > 5", "$.num_text < 9", "$.big <= 12345678901234567890122",
    "metadata.timestamp > 0",
    "$.s in [open]", "$.n in [5.0]", "$.s =~ '^aid'", "$.s =~ 'PAID'",
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_it_holds(text: str) -> None:
    assert Condition.parse(text).compile()(RECORD) is True


@pytest.mark.parametrize("text", FALSE)
def test_it_does_not_hold(text: str) -> None:
    assert Condition.parse(text).compile()(RECORD) is False


def test_the_example_of_the_reference() -> None:
    holds = Condition.parse("$.type == 'order' && !$.total").compile()
    assert holds(Record({"type": "order", "total": 0}, {}))
    assert not holds(Record({"type": "order", "total": 1}, {}))


@pytest.mark.parametrize("body", [b"no json", b"", b" ", None])
def test_of_a_body_that_is_no_json_every_field_is_missing(body: bytes | None) -> None:
    record = Record(parse(body), {"topic": "t"})
    for text in ("$.a", "$.a == ''", "$.a != 'x'", "@this", "0", "$.a < 1"):
        assert not Condition.parse(text).compile()(record)
    assert Condition.parse("!$.a && metadata.topic == t").compile()(record)


def test_a_number_too_long_to_be_written_out_rejects_the_record() -> None:
    record = Record(parse(b'{"a":1e5000}'), {})
    assert Condition.parse("$.a > 5").compile()(record)
    with pytest.raises(RejectedRecord, match=r"a: a number of more than 4300 digits"):
        Condition.parse("$.a == 5").compile()(record)


def _refused(step: Step, body: dict[str, Any], when: str | None = None) -> RejectedRecord:
    chain = Chain(
        [
            Transformation(Remove.model_validate({"fields": ["x"]})),
            Transformation(step, _read(when)),
        ],
        Context(datetime(2026, 7, 20, tzinfo=UTC)),
    )
    with pytest.raises(RejectedRecord) as raised:
        chain(Record(body, {}))
    return raised.value


def _read(when: str | None) -> Condition | None:
    return None if when is None else Condition.parse(when)


@pytest.mark.parametrize(
    ("step", "when"),
    [
        (Filter.model_validate({"condition": "$.a.@fromstr.b == 1"}), None),
        (Remove.model_validate({"fields": ["c"]}), "$.a.@fromstr.b"),
        (Select.model_validate({"fields": ["a.@fromstr.b"]}), None),
    ],
)
@pytest.mark.parametrize("text", ['{"b": "\\ud800"}', '{"b": 1, "b": 2}'])
def test_what_a_path_cannot_read_names_step_and_path(
    step: Step, when: str | None, text: str
) -> None:
    error = _refused(step, {"a": text}, when)
    assert (error.stage, error.step, error.step_type) == ("step", 1, step.type)
    assert error.reason.startswith("a.@fromstr.b: ")


ERRORS = [
    ("", "is empty"),
    ("  ", "is empty"),
    ("$.a == 'x", "column 8: a quote that is not closed"),
    ("$.a == \"x'", "column 8: a quote that is not closed"),
    ("($.a", "column 1: a ( without its )"),
    ("$.b || ($.a && $.c", "column 8: a ( without its )"),
    ("$.a)", "column 4: unmatched `)`"),
    ("()", "column 2: a field is missing"),
    ("($.a) == 'x'", "column 7: text after a condition; a group is not compared"),
    ("($.a) $.b", "column 7: text after a condition"),
    ("$.a == 'x' 'y'", "column 12: text after a condition; allowed: && || )"),
    ("$.a == x y", "column 10: text after a condition"),
    ("$.a == 'x'y", "column 11: text after a condition"),
    ("$.a $.b", "column 5: no operator; allowed: == !="),
    ("$.a and $.b", "column 5: no operator"),
    ("$.a & $.b", "column 5: no operator"),
    ("$.a = 'x'", "column 5: no operator"),
    ("$.a='x'", "column 4: no operator"),
    ("$.a==5", "column 4: no operator: put a space after =="),
    ("$.a ==5", "column 5: no operator: put a space after =="),
    ("$.a!=5", "column 4: no operator: put a space after !="),
    ("$.a<5", "column 4: no operator: put a space after <"),
    ("$.a ==", "column 5: no operator"),
    ("$.a == ", "column 8: a value is missing"),
    ("$.a == )", "column 8: a value is missing"),
    ("$.a == && $.b", "column 8: a value is missing"),
    ("$.a &&", "column 7: a field is missing"),
    ("|| $.a", "column 1: a field is missing"),
    ("!", "column 2: a field is missing"),
    ("$", "column 1: a field is missing"),
    ("$.", "column 1: a field is missing"),
    ("'x' == $.a", "column 1: a field is missing"),
    ("== 'x'", "column 1: a field is missing"),
    ("metadata. == 'x'", "column 10: an empty key"),
    ("$.a == $.b", "column 8: fields cannot be compared with each other"),
    ("len($.a) == 5", "column 4: no operator"),
    ("$.x || $.a..b", "column 12: `..`, for any depth, is not supported"),
    ("$.items.#(k==\"v\" == 'x'", "column 9: a query without its )"),
    ("$.a.@pretty == 'x'", "column 5: not supported: @pretty"),
    ("$.a < x", "column 7: < compares numbers"),
    ("$.a >= ''", "column 8: >= compares numbers"),
    ("$.a < NaN", "column 7: < compares numbers"),
    ("$.a =~ '(x'", "column 8: no regular expression"),
    ("$.a in", "column 5: no operator"),
    ("$.a in x", "column 8: a list is missing"),
    ("$.a in []", "column 9: a value is missing"),
    ("$.a in [a", "column 8: a [ without its ]"),
    ("$.a in [a b]", "column 8: a [ without its ]"),
    ("$.a in [a,]", "column 11: a value is missing"),
    ("!" * 60 + "$.a", "more than 50 groups"),
    ("(" * 60 + "$.a" + ")" * 60, "more than 50 groups"),
]


@pytest.mark.parametrize(("text", "why"), ERRORS)
def test_what_cannot_be_read_is_an_error_with_its_column(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Condition.parse(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("$.a", set()),
        ("metadata.topic", {"topic"}),
        ("!metadata.key && ($.a || metadata.a.b == 'x')", {"key", "a.b"}),
        ("$.metadata.topic", set()),
        ("metadata", set()),
    ],
)
def test_the_metadata_it_reads(text: str, keys: set[str]) -> None:
    assert Condition.parse(text).reads() == keys


class _Declared(Spec):
    when: Condition


def test_a_condition_in_a_manifest() -> None:
    declared = _Declared.model_validate({"when": " $.a == 'x' "})
    assert declared.when == Condition.parse(" $.a == 'x' ")
    assert _Declared.model_validate(declared.model_dump()) == declared
    assert pickle.loads(pickle.dumps(declared.when)) == declared.when  # noqa: S301
    with pytest.raises(ValueError, match="column 9: a value is missing"):
        _Declared.model_validate({"when": "$.a ==  "})


laws = settings(derandomize=True, deadline=None, max_examples=examples(300))
WORDS = st.sampled_from([
    "$.s", "$.n", "$.gone", "metadata.topic", "==", "!=", "<", "in", "=~", "'x'", '"', "'", "5",
    "(", ")", "!", "&&", "||", "[a]", "[", "#(", "\\", "a", ".", ",",
])  # fmt: skip


@laws
@given(st.lists(WORDS, max_size=9), st.sampled_from(["", " "]))
def test_any_text_is_a_condition_or_an_error(words: list[str], between: str) -> None:
    try:
        condition = Condition.parse(between.join(words))
    except ValueError as error:
        assert re.search("column [1-9]|is empty", str(error))  # noqa: PT017
        return
    assert condition.compile()(RECORD) in {True, False}


ATOMS = st.sampled_from(
    [("$.s", True), ("$.zero", False), ("$.gone != 'x'", False), ("$.n == 5", True)]
)
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map(lambda a: (f"!({a[0]})", not a[1])),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}) && ({p[1][0]})", p[0][1] and p[1][1])),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}) || ({p[1][0]})", p[0][1] or p[1][1])),
    ),
    max_leaves=12,
)


@laws
@given(TREES)
def test_conditions_are_logic(tree: tuple[str, bool]) -> None:
    text, wanted = tree
    assert Condition.parse(text).compile()(RECORD) is wanted


@laws
@given(st.lists(ATOMS, min_size=1, max_size=6), st.lists(st.sampled_from(["&&", "||"]), min_size=5))
def test_and_binds_tighter_than_or(atoms: list[tuple[str, bool]], signs: list[str]) -> None:
    text, python = atoms[0][0], str(atoms[0][1])
    for sign, (atom, truth) in zip(signs, atoms[1:], strict=False):
        text += f" {sign} {atom}"
        python += f" {'and' if sign == '&&' else 'or'} {truth}"
    assert Condition.parse(text).compile()(RECORD) is eval(python)  # noqa: S307
