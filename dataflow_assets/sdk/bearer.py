"""Requests with bearer tokens.

Imported where a connection is made: `requests` is no part of loading a manifest.
"""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response
from requests.auth import AuthBase
from typing_extensions import override

from dataflow_assets.sdk.oauth import Tokens
from dataflow_assets.secrets import one_word

REFUSED = 401
"""The status of an answer that has not taken the token."""


class Bearer(AuthBase):
    """Puts a token on each request of a `requests` session.

    One that was fetched and is refused all the same (its time ran out on the way, or the server
    was restored) is fetched anew, and the request sent once more.
    """

    def __init__(self, source: Tokens | str, option: str) -> None:
        """`option`: the key that holds a token that is given as it is, for messages.

        Raises PermanentError where that is no token.
        """
        self._source = one_word(source, option) if isinstance(source, str) else source

    @override
    def __call__(self, r: PreparedRequest) -> PreparedRequest:
        if isinstance(self._source, str):
            r.headers["Authorization"] = f"Bearer {self._source}"
            return r
        r.headers["Authorization"] = f"Bearer {self._source.current()}"
        r.register_hook("response", self._again)
        return r

    def _again(self, answer: Response, **kwargs: Any) -> Response:
        if answer.status_code != REFUSED or isinstance(self._source, str):
            return answer
        self._source.forget()
        request = answer.request.copy()
        request.deregister_hook("response", self._again)
        request.headers["Authorization"] = f"Bearer {self._source.current()}"
        answer.content  # noqa: B018 - read to its end, so that the connection can be used again
        answer.close()
        again: Response = answer.connection.send(request, **kwargs)
        again.request = request
        return again
