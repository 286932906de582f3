"""Files dropped, edited or removed while Dagster runs show up without a restart.

Dagster reads a code location again only when it is asked to. This sensor's tick runs inside the
code server: when the folder is not what was loaded, it asks the web server to reload, which starts
a new code server and ends this one once its runs are done.
"""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import psutil

from dataflow_assets.assets.build import MANIFEST_CHECK, broken_key, by_file, findings_metadata
from dataflow_assets.errors import Finding
from dataflow_assets.location.sensors.instances import location_name
from dataflow_assets.manifests.watched import fingerprint

INTERVAL_SECONDS = 4
MUTATION = """mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) { __typename }
}"""
GRACE_SECONDS = 0.5  # the tick returns before its server is replaced
PATIENCE_SECONDS = 60.0


def reload_sensor(
    folders: Sequence[Path], loaded: str, findings: Sequence[Finding]
) -> dg.SensorDefinition:
    """`loaded` is the fingerprint of what this code server read."""
    asking = _Asking()

    @dg.sensor(
        name="files",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Loads the location again when a file in its folders has changed.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = fingerprint(folders)
        if now != loaded:
            return dg.SensorResult(skip_reason=dg.SkipReason(asking.reload(now, _name(context))))
        events = [] if context.cursor == loaded else list(_failing(findings))
        skip = None if events else dg.SkipReason("the files are as they were loaded")
        return dg.SensorResult(asset_events=events, cursor=loaded, skip_reason=skip)

    return tick


def _failing(findings: Sequence[Finding]) -> Iterator[dg.AssetCheckEvaluation]:
    """Once per load: what cannot be used fails its check without anybody running it."""
    for file, its in by_file(findings).items():
        yield dg.AssetCheckEvaluation(
            asset_key=broken_key(file),
            check_name=MANIFEST_CHECK,
            passed=False,
            metadata=findings_metadata(its),
        )


def _name(context: dg.SensorEvaluationContext) -> str:
    return location_name(context) or "dataflow-assets"


class _Asking:
    """Asks in the background, once for each state of the files and again when nothing came of it.

    What became of it shows at the next tick, which a new code server answers.
    """

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}

    def reload(self, now: str, name: str) -> str:
        waited = time.monotonic() - self._asked.get(now, -PATIENCE_SECONDS)
        if waited < PATIENCE_SECONDS:
            return f"files changed: waiting for {name} to be loaded again"
        url = web_server()
        if url is None:
            return (
                "files changed, but no web server of this Dagster was found to ask: reload the "
                "location in the UI, or set DATAFLOW_WEBSERVER to its address"
            )
        self._asked = {now: time.monotonic()}
        threading.Thread(target=_reload, args=(url, name), daemon=True).start()
        return f"files changed: {url} was asked to load {name} again"


def _reload(url: str, name: str) -> None:
    time.sleep(GRACE_SECONDS)
    body = json.dumps({"query": MUTATION, "variables": {"name": name}}).encode()
    request = urllib.request.Request(  # noqa: S310 - an address of our own machine or setting
        f"{url}/graphql", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=120).close()  # noqa: S310


def web_server() -> str | None:
    """DATAFLOW_WEBSERVER, else the web server that `dagster dev` started beside this process."""
    url = os.environ.get("DATAFLOW_WEBSERVER")
    if url:
        return url.rstrip("/")
    for ancestor in psutil.Process().parents():
        for child in ancestor.children():
            if port := _web_port(child):
                return f"http://127.0.0.1:{port}"
    return None


def _web_port(process: psutil.Process) -> int | None:
    try:
        if not any("dagster_webserver" in p or "dagster-webserver" in p for p in process.cmdline()):
            return None
        listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return None
    return int(listening[0].laddr.port) if listening else None
