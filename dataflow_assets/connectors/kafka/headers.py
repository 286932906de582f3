"""A record's headers as the plain client gives them; names that are not UTF-8 are no obstacle.

The client makes such a name a null pointer, and leaves an error behind that it does not report;
whoever touches the name ends the process. So the message is given other headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller
from typing import Any

from confluent_kafka import Message

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
Header = tuple[str, bytes | None]
# Only a call from C always finds the error: Python's own, once it was made often, no longer looks.
_client_headers = methodcaller("headers")


def headers(message: Message) -> list[Header]:
    """Names and values in their order.

    What is not UTF-8 in a name is replaced, as Java does it. Of several such names in one record
    only the first is known; the others are UNREADABLE as a whole.
    """
    try:
        return _list(message)
    except (SystemError, UnicodeDecodeError) as error:
        names = iter([_name(error)])
        sound: list[Header] = [
            (next(names, UNREADABLE), one[1]) if _is_broken(one) else one for one in _list(message)
        ]
        message.set_headers([*sound])
        return sound


def _list(message: Message) -> list[Header]:
    pairs: Any = _client_headers(message)
    return list(pairs or ())


def _is_broken(one: Header) -> bool:
    return repr(one).startswith("(<NULL>, ")


def _name(error: BaseException) -> str:
    names = [each.object for each in _chain(error) if isinstance(each, UnicodeDecodeError)]
    return names[-1].decode("utf-8", "replace") if names else UNREADABLE


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
