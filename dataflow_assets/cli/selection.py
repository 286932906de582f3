"""Which flows of the given paths a command is about, and what is said about the others.

A finding in one manifest never stops the healthy flows beside it: it is told on stderr. It makes a
command fail only where the command was about all flows of the paths.
"""

from __future__ import annotations

from collections.abc import Iterable

from dataflow_assets.cli.console import err
from dataflow_assets.errors import PermanentError
from dataflow_assets.errors.likely_names import did_you_mean
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import Loaded


def select(loaded: Loaded, names: Iterable[str]) -> list[Flow]:
    """The flows of these names; raises PermanentError that lists what there is."""
    chosen = []
    for name in names:
        flow = loaded.flow(name)
        if flow is None:
            say_findings(loaded)
            raise PermanentError(_unknown_flow(loaded, name))
        chosen.append(flow)
    return list({flow.id: flow for flow in chosen}.values())


def _unknown_flow(loaded: Loaded, name: str) -> str:
    several = [flow.id for flow in loaded.flows if flow.name == name]
    if several:
        return f"there are several flows {name}: {', '.join(several)}; give the namespace too"
    ids = [flow.id for flow in loaded.flows]
    suggestion = did_you_mean(name, [*ids, *(flow.name for flow in loaded.flows)])
    hidden = " (manifests with findings are left out)" if loaded.findings else ""
    return f"no flow {name}{suggestion or '.'} There is: {', '.join(ids) or 'none'}{hidden}"


def to_run(loaded: Loaded, names: list[str], *, waits: bool = False) -> list[Flow]:
    """The chosen flows, or all that may run now. Findings elsewhere are only told.

    `waits`: the run goes on for a while, and begins with a flow when its window has closed.
    """
    flows = select(loaded, names) if names else loaded.flows
    say_findings(loaded)
    if not flows:
        raise PermanentError("no flow to run in these paths: dataflow check says why")
    held = {
        flow.id: why
        for flow in flows
        if (why := flow.pause_reason()) and (flow.suspended or not waits)
    }
    if held and names:
        reasons = "; ".join(f"{name} is {why}" for name, why in held.items())
        raise PermanentError(f"{reasons}: it must not run")
    for name, why in held.items():
        err(f"{name}: left out: {why}")
    return [flow for flow in flows if flow.id not in held]


def say_findings(loaded: Loaded) -> None:
    for finding in loaded.findings:
        err(str(finding))
