"""Values that name where they are kept, in the spelling of Connect's config providers."""

from __future__ import annotations

import re

from dataflow_assets.secrets import SecretRef, VariableRef

ALLOWED = "${env:VARIABLE} or ${secrets:NAMESPACE/NAME:KEY}"
_VARIABLE = re.compile(r"\$(?:\{[A-Za-z_]\w*\}|[A-Z_][A-Z0-9_]*)")
_REFERENCE = re.compile(r"\$\{(?P<provider>[\w.-]*):(?P<rest>[^}]*)\}")


def reference(text: str) -> SecretRef | None:
    """Returns what a value refers to; None for plain text.

    Raises ValueError for a reference that is not supported, with a sentence that quotes nothing
    but the name of its provider.
    """
    match = _REFERENCE.search(text)
    if match is None:
        return None
    if match.group() != text.strip():
        raise ValueError(f"a reference must be the whole value: {ALLOWED}")
    if match["provider"] == "env":
        return VariableRef.of(match["rest"])
    if match["provider"] in {"secret", "secrets"}:
        place, _, key = match["rest"].rpartition(":")
        namespace, _, name = place.rpartition("/")
        return SecretRef(name=name, key=key, namespace=namespace or None)
    raise ValueError(f"the provider {match['provider'] or '(none)'} is not supported: {ALLOWED}")


def is_shell_variable(text: str) -> bool:
    """Returns whether a value is a variable as a shell has it, which is taken as it is written."""
    return _VARIABLE.fullmatch(text.strip()) is not None


def mentions(text: str) -> bool:
    """Returns whether a value has a reference in it, where none is allowed."""
    return _REFERENCE.search(text) is not None
