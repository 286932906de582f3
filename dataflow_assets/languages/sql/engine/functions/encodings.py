"""Texts as digests, base64 and numbers of characters."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

from dataflow_assets.languages.sql.engine.function import Function
from dataflow_assets.languages.sql.engine.functions.signatures import takes
from dataflow_assets.languages.sql.engine.types import INT, STRING


def _digest(name: str) -> Callable[[str], str]:
    return lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _from_base64(text: str) -> str:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise ValueError("FROM_BASE64: the text is not base64") from None
    return data.decode("utf-8", "replace")


def _character(number: int) -> str:
    return chr(number % 256) if number >= 0 else ""


_GROUP = "Texts"
FUNCTIONS = (
    Function(
        "MD5",
        "MD5(a)",
        "",
        takes("text", STRING, _digest("md5")),
        (("MD5('a')", "0cc175b9c0f1b6a831c399e269772661"),),
        _GROUP,
    ),
    Function(
        "SHA1",
        "SHA1(a)",
        "",
        takes("text", STRING, _digest("sha1")),
        (("SHA1('a')", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),),
        _GROUP,
    ),
    Function(
        "SHA256",
        "SHA256(a)",
        "",
        takes("text", STRING, _digest("sha256")),
        (("LEFT(SHA256('a'), 8)", "ca978112"),),
        _GROUP,
    ),
    Function(
        "SHA512",
        "SHA512(a)",
        "",
        takes("text", STRING, _digest("sha512")),
        (("LEFT(SHA512('a'), 8)", "1f40fc92"),),
        _GROUP,
    ),
    Function(
        "TO_BASE64",
        "TO_BASE64(a)",
        "",
        takes("text", STRING, lambda text: base64.b64encode(text.encode()).decode()),
        (("TO_BASE64('hello')", "aGVsbG8="),),
        _GROUP,
    ),
    Function(
        "FROM_BASE64",
        "FROM_BASE64(a)",
        "",
        takes("text", STRING, _from_base64),
        (("FROM_BASE64('aGVsbG8=')", "hello"), ("FROM_BASE64('aGVsbG8')", "hello")),
        _GROUP,
    ),
    Function(
        "ASCII",
        "ASCII(a)",
        "The number of the first character.",
        takes("text", INT, lambda text: ord(text[0]) if text else 0),
        (("ASCII('abc')", "97"),),
        _GROUP,
    ),
    Function(
        "CHR", "CHR(a)", "", takes("integer", STRING, _character), (("CHR(97)", "a"),), _GROUP
    ),
)
