"""A record's headers as the plain client gives them; names that are not UTF-8 are no obstacle.

The client makes such a name a null pointer, and says so only once, by the error of `headers()`;
whoever touches the name afterwards ends the process. So the message is given other headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from confluent_kafka import Message

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
Header = tuple[str, bytes | None]


def headers(message: Message) -> list[Header]:
    """Names and values in their order.

    What is not UTF-8 in a name is replaced, as Java does it. Of several such names in one record
    only the first is known; the others are UNREADABLE as a whole.
    """
    try:
        return _listed(message)
    except (SystemError, UnicodeDecodeError) as error:
        names = iter([_name(error)])
        sound: list[Header] = [
            (next(names, UNREADABLE), one[1]) if _is_broken(one) else one
            for one in _listed(message)
        ]
        message.set_headers(list(sound))
        return sound


def _listed(message: Message) -> list[Header]:
    return cast("list[Header]", message.headers() or [])


def _is_broken(one: Header) -> bool:
    return repr(one).startswith("(<NULL>, ")


def _name(error: BaseException) -> str:
    found = [each.object for each in _chain(error) if isinstance(each, UnicodeDecodeError)]
    return found[-1].decode("utf-8", "replace") if found else UNREADABLE


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
