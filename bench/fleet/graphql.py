"""Questions to Dagster's web server."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


def ask(url: str, query: str) -> dict[str, Any]:
    """The data of the answer; `url` is that of the web server. Raises where it says no."""
    body, kind = json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/graphql", body, kind)  # noqa: S310 (ours)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (ours)
        return dict(json.loads(answer.read())["data"])
