"""Digests as the versions before made them: of Python's `repr` of a plan.

For one release: states that they have written are found by these, and the next commit writes the
digest of this version. Names of classes were in them; they are those that the tags stand for.
"""

from __future__ import annotations

import hashlib

from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state.digests import PLANS, Digests, digests


def former_digests(view: ViewPlan) -> Digests:
    """The digests that a version before has stored with a state of the query."""
    return digests(view, lambda value: hashlib.sha256(_repr(value).encode()).hexdigest())


def _repr(value: object) -> str:
    form = PLANS.form(value)
    if form is not None:
        name = form.tag.title().replace("_", "")
        attributes = [f"{k}={_repr(getattr(value, a))}" for k, a in form.attributes.items()]
        return f"{name}({', '.join(attributes)})"
    if isinstance(value, tuple):
        inner = [_repr(one) for one in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    return repr(value)
