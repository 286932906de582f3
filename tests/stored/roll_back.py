"""Goes on with another version, whose checkout is given, where this one was killed.

python tests/stored/roll_back.py CHECKOUT [pytest's options]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.stored.checkouts import CHECKOUT, ended, run
from tests.stored.flows import StoredFlow
from tests.stored.left import LEFT
from tests.stored.queries import FIRST, QUERIES, SECOND, THIRD, StoredQuery
from tests.stored.running import drain

ROOT = Path(__file__).parents[2]


def _here(what: str, file: Path, failpoint: str) -> None:
    """With this version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CHECKOUT, str(ROOT))
        run(what, file, failpoint)


@pytest.mark.parametrize("name", LEFT)
def test_a_flow(name: str, request: pytest.FixtureRequest) -> None:
    flow, left = StoredFlow(request, LEFT[name].system), LEFT[name]
    flow.leave(_here, left.in_drain, left.in_replay)
    flow.send_third()
    run("drain", flow.file)
    run("replay", flow.mended)
    assert flow.stores.rows() == flow.expected()


@pytest.mark.parametrize("name", QUERIES)
def test_a_query(name: str, request: pytest.FixtureRequest) -> None:
    """Goes on, or is refused in one sentence before anything is written."""
    query, anew = StoredQuery(request, QUERIES[name]), StoredQuery(request, QUERIES[name], "anew")
    query.leave(_here)
    left = query.sql.rows()
    query.send(THIRD)
    done = ended("running.py", "drain", str(query.file))
    if done.returncode:
        sentence = done.stderr.splitlines()[-1]
        assert sentence.startswith("dataflow_assets.errors.PermanentError: "), sentence
        print(sentence)  # noqa: T201 - for whoever writes what going back means
        assert query.sql.rows() == left
        return
    for numbers in (FIRST, SECOND, THIRD):
        anew.send(numbers)
    drain(anew.file)
    assert query.result() == anew.result()


if __name__ == "__main__":
    os.environ[CHECKOUT] = str(Path(sys.argv[1]).resolve())
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider", "-rP", *sys.argv[2:]]))
