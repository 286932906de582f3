"""What is at the bottom of an error of the way to a server, in words.

Clients over HTTP wrap the refusal of the network two or three times, each with the names of Python
objects and the whole request in its text.
"""

from __future__ import annotations

import os

LONGEST = 200


def cause(error: BaseException) -> str:
    """The innermost error as a clause, such as `Connection refused`.

    Called on the driver and in tasks with what a client has raised.

    Args:
        error: in whose causes is looked.

    Returns:
        One line of 200 characters at most, never empty.
    """
    inner = [getattr(error, "reason", None), error.__cause__, error.__context__, *error.args[-1:]]
    deeper = next((each for each in inner if isinstance(each, BaseException)), None)
    if deeper is not None and deeper is not error:
        return cause(deeper)
    if isinstance(error, OSError) and error.errno and error.errno > 1:
        return error.strerror or os.strerror(error.errno)
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__
