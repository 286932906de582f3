"""Answers of a process over HTTP: its metrics, and whether it is ready and alive."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from dataflow_assets.metrics.exposition import families
from dataflow_assets.metrics.process import recorder
from dataflow_assets.metrics.recorder import Recorder

ADDRESS = "DATAFLOW_HEALTH"
PATHS = ("/readyz", "/livez", "/healthz")

log = logging.getLogger(__name__)


@contextmanager
def serving(
    host: str, port: int, registry: CollectorRegistry, health: Callable[[str], str]
) -> Iterator[int]:
    """Answers until the block ends; gives the port. Raises OSError where the address is taken.

    `health` takes one of the three paths and returns `ok`, or why not.
    """
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] not in PATHS:
            return metrics(environ, start)
        text = health(environ["PATH_INFO"])
        status = "200 OK" if text == "ok" else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    family = socket.getaddrinfo(host, port)[0][0]
    server_class: type[_Server] = type("Server", (_Server,), {"address_family": family})
    with make_server(host, port, answer, server_class, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving_lane(lane: str) -> Iterator[None]:
    """Answers for the lane of this process where DATAFLOW_HEALTH says, such as `0.0.0.0:9090`.

    Where nobody can listen there, that is logged, and the lane is driven all the same.
    """
    own, address = recorder(), os.environ.get(ADDRESS, "")
    own.health.lane = lane
    registry = CollectorRegistry()
    registry.register(_Process(own))
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        try:
            if address:
                stack.enter_context(serving(host.strip("[]"), int(port), registry, own.health))
        except (OSError, ValueError) as error:
            log.warning("%s=%s: the lane %s answers no probes: %s", ADDRESS, address, lane, error)
        yield


class _Process(Collector):
    def __init__(self, own: Recorder) -> None:
        self._own = own

    @override
    def collect(self) -> Iterator[Metric]:
        yield from families(self._own.samples())


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:
        """A probe comes every few seconds."""
