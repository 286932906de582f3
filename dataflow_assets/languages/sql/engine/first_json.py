"""The JSON value at the front of a text, whatever is behind it: what Flink reads of one."""

from __future__ import annotations

import json
from typing import NoReturn


def first_json(text: str) -> str:
    """The part of the text that is the value.

    Called where a text is no JSON as a whole. Raises ValueError where none is at the front: behind
    a number or a word there is a blank.
    """
    begin = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    quoted = text[begin : begin + 1] == '"'
    if not (quoted or isinstance(value, dict | list)) and text[end : end + 1].strip(" \t\r\n"):
        raise ValueError("no space behind the value")
    return text[begin:end]


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse)
