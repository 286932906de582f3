"""The forms of texts that are read a column at once.

A parser that reads all texts of a column in one step is asked only where every text has the form
that the parser reads as the one-by-one reading would.

Apart from the formats, because the PostgreSQL sink reads texts by the same forms.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
"""A UUID with its dashes."""
NUMBER = r"^(-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|NaN|-?Infinity)$"
"""A number as JSON writes it, and what JSON has no numbers for."""


def all_have(form: str, texts: pa.Array) -> bool:
    """Tells whether every text has the form; nulls count as having it.

    Called in tasks, once for each column of a block of rows.

    Args:
        form: a regular expression of RE2, which matches anywhere unless it begins with `^` and
            ends with `$`.
        texts: an array of strings.
    """
    return bool(pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py())
