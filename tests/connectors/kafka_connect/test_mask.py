"""Secrets are hidden in whatever form a connector writes them."""

from __future__ import annotations

import json

import pytest

from dataflow_assets.connectors.kafka_connect.mask import Mask

KEY = "-----BEGIN KEY-----\n  Zm9v\n}\nYmFy\n-----END KEY-----\n"


@pytest.mark.parametrize(
    ("values", "text", "shown"),
    [
        (["s3cret"], "with s3cret.", "with ***."),
        (["two  blanks"], "with two blanks, two  blanks and two\tblanks", "with ***, *** and ***"),
        ([KEY], "the key Zm9v", "the key ***"),
        ([KEY], "  YmFy", "  ***"),
        ([KEY], " ".join(KEY.split()), "***"),
        ([KEY], f"<{KEY.strip()}>", "<***>"),
        ([KEY], "{ } is shown", "{ } is shown"),
        (["abc", "abcdef"], "abcdef abc", "*** ***"),
        (['a"b\\c'], r'{"password":"a\"b\\c"}', '{"password":"***"}'),
        (["pässword"], r"p\u00e4ssword, pässword", "***, ***"),
        (["s3cr3t/+= x"], "s3cr3t%2F%2B%3D%20x s3cr3t%2f%2b%3d+x s3cr3t/%2B%3D%20x", "*** *** ***"),
        ([KEY], json.dumps(KEY), '"***"'),
        (["555\ns3cret"], "5553 s3cret", "5553 ***"),
        (["s3cret\n"], "with s3cret", "with ***"),
        (["a.c"], "abc a.c", "abc ***"),
        (["", " \n"], "nothing  to hide", "nothing  to hide"),
    ],
)
def test_no_form_of_a_secret_is_shown(values: list[str], text: str, shown: str) -> None:
    assert Mask(values)(text) == shown
