"""The statements of a `.sql` text by their first words, by which languages recognise their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dataflow_assets.languages.common.tokens import SINGLESTORE, Token, Unreadable, tokens


def first(text: str, begins: Collection[tuple[str, ...]]) -> Token | None:
    """Finds the first statement that begins with one of these words.

    Args:
        text: of a whole file, read as far as its tokens can be.
        begins: words in capitals.

    Returns:
        The first token of the statement.
    """
    return next((one[0] for one in statements(text) if begins_with(one, begins)), None)


def begins_with(statement: Sequence[Token], begins: Collection[tuple[str, ...]]) -> bool:
    """Compares the first words of a statement, in any case."""
    words = words_of(statement)
    return any(words[: len(begin)] == list(begin) for begin in begins)


def words_of(statement: Sequence[Token]) -> list[str]:
    """The words, symbols and texts of a statement, in capitals."""
    return [one.text.upper() for one in statement if one.kind in ("word", "symbol", "text")]


def statements(text: str) -> Iterator[list[Token]]:
    """Splits a text at its semicolons; the body of a procedure belongs to its statement.

    SingleStore's tokens are those of MySQL, and include nearly all of Flink's.
    """
    read: list[Token] = []
    blocks = 0
    try:
        for token in tokens(text, SINGLESTORE):
            if token.kind == "end":
                break
            blocks += token.says("BEGIN") and any(token.says("PROCEDURE") for token in read[:4])
            blocks -= blocks and token.says("END")
            if not token.says(";"):
                read.append(token)
            elif read and not blocks:
                yield read
                read = []
    except Unreadable:
        pass
    if read:
        yield read
