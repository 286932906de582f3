"""The last line of defence: secret values taken out of a text before anybody sees it.

Connectors do not put secrets into messages. An exception that nobody foresaw may, and a traceback
shows what a client library thinks fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from pydantic import SecretStr

from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.secrets import inside, is_secret, resolved_values
from dataflow_assets.spec import Spec

MASK = "***"
SHORTEST = 4  # a shorter value would blot out ordinary words and protects nothing
_IN_URL = re.compile(r"://[^/\s:@]*:([^@\s]+)@|\bpassword\s*=\s*'?([^'\s]+)", re.IGNORECASE)


def mask(text: str, flows: Iterable[Flow]) -> str:
    """The text without any secret value of these flows, and without passwords inside URLs."""
    values = {value for flow in flows for value in _values(flow)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return _IN_URL.sub(_hide, text)


def _values(flow: Flow) -> Iterator[str]:
    """Secret values; the parts of addresses are shown everywhere and stay readable."""
    shown = {flow.name, flow.namespace, *flow.source_address.parts}
    shown.update(part for branch in flow.branches for part in branch.address.parts)
    documents = (value for keys in flow.secrets.documents.values() for value in keys.values())
    ends = (*_ends(flow), *_ends(_resolve(flow)))
    direct = (value for end in ends for value in _declared_secrets(end))
    # A message may show a value that was replaced since.
    secrets = (*resolved_values(), *(secret.get_secret_value() for secret in (*documents, *direct)))
    # Where a value is used without the line break at its end, a message shows it so.
    for value in dict.fromkeys(text for one in secrets for text in (one, one.strip())):
        if len(value) >= SHORTEST and value not in shown:
            yield value
            yield from (part for part in _parts(value) if len(part) >= SHORTEST)


def _parts(value: str) -> Iterator[str]:
    """Passwords inside a URL, and inside a JSON object, such as a connector's credentials."""
    yield from (part for groups in _IN_URL.findall(value) for part in groups)
    if value.startswith("{"):
        with suppress(ValueError):
            texts = json.loads(value).items()
            yield from (text for key, text in texts if is_secret(key) and isinstance(text, str))


def _resolve(flow: Flow) -> Flow:
    """With the values of its Secrets, as far as they are there.

    Each line of a log comes by here, with a lock held: the Kubernetes API is not asked, which may
    be away. What this process has from it is among those in `resolved_values`.
    """
    if inside():
        return flow
    try:
        return flow.resolvable()
    except DataflowError:
        return flow


def _ends(flow: Flow) -> tuple[Spec, ...]:
    errors = flow.policies.rejects.sink
    return (flow.source, *(branch.sink for branch in flow.branches), *([errors] if errors else []))


def _declared_secrets(spec: Spec) -> Iterator[SecretStr]:
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, SecretStr):
                yield one
            elif isinstance(one, Spec):
                yield from _declared_secrets(one)


def _hide(match: re.Match[str]) -> str:
    return match[0].replace(match[1] or match[2], MASK)
