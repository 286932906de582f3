"""Tokens as they go into a header of HTTP: one word, whose last line break is not a part of it."""

from __future__ import annotations

from dataflow_assets.errors import PermanentError


def one_word(text: str, option: str) -> str:
    """A token as it is sent.

    Called whenever a client is made, on the driver and in tasks, with all secrets in place. A
    client that is given a line break refuses the header, with a message that shows the token.

    Args:
        text: the token, as a manifest or a Secret has it.
        option: the key that holds it, for messages.

    Returns:
        The token without spaces and line breaks around it.

    Raises:
        PermanentError: there is nothing, or more than one word of ASCII; the token is not shown.
    """
    word = text.strip()
    if not word:
        raise PermanentError(f"{option}: the token, or its Secret, is empty")
    if not (word.isascii() and word.isprintable()) or " " in word:
        raise PermanentError(
            f"{option}: a token is one word of ASCII characters, without spaces and line breaks in "
            "it; check what the Secret holds"
        )
    return word
