"""Collects a client's errors while it gets no answer, and tells whether a refusal is permanent.

librdkafka tries again and again, whatever a broker says, and its exceptions only say that the time
is up. What it complains of meanwhile tells a broker that is down from one that refuses the client.
"""

from __future__ import annotations

import re
import time

from confluent_kafka import KafkaError

from dataflow_assets.connectors.kafka import handshake
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.errors import DataflowError, PermanentError, TransientError

GRACE = 0.5  # seconds in which another broker may take in a client that one has refused
_DENIED = KafkaError._AUTHENTICATION  # noqa: SLF001 - so the client's own errors are called
_TLS = KafkaError._SSL  # noqa: SLF001
_CUT_OFF = "mechanism handshake failed: Local:"
_OPENSSL = "SSL routines"  # of what a broker says to the client's certificate, too
_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_HUNG_UP = "brokers are down"  # which is also said where all of them hang up
_FRAME = re.compile(r"^\w+://\S+?: | \(after \d+ms in state \w+.*\)$")


class ClientErrors:
    """Errors of one client since it was last answered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.last = ""
        self._refused: KafkaError | None = None
        self._probed = False
        self._since = 0.0

    def hear(self, error: KafkaError) -> None:
        if _CUT_OFF in error.str():  # the connection has failed, and nobody was refused
            self._refused = None
        elif error.code() in (_DENIED, _TLS) or _OPENSSL in error.str():
            self._since = self._since if self._refused else time.monotonic()
            self._refused = error
        # The last one says less than the one before it; 0 of them are down once one is back.
        if error.code() != _DOWN or not (self.last or error.str().startswith("0/")):
            self.last = error.str()

    def forget(self) -> None:
        """The cluster has answered: what was complained of before is over."""
        self.last, self._refused = "", None

    @property
    def is_denied(self) -> bool:
        """Returns whether the client's last login was refused, as far as it has been heard."""
        return self._refused is not None and self._refused.code() == _DENIED

    def refusal(self) -> PermanentError | None:
        """Why the cluster takes the client in neither now nor later; None where it may.

        Called again and again while an answer is awaited.
        """
        error = self._refused
        if error is None or time.monotonic() - self._since < GRACE:
            return None
        reason = _denial(error, self._cluster) if error.code() == _DENIED else self._of_tls(error)
        return self._error(reason) if reason else None

    def explain(self, error: DataflowError) -> DataflowError:
        """The error, or what is behind it: why nobody will ever answer.

        Called once an answer has failed to come.
        """
        if not isinstance(error, TransientError):
            return error
        if (refusal := self.refusal()) is not None:
            return refusal
        if self._cluster.tls is None and not self._probed and self.last.endswith(_HUNG_UP):
            self._probed = True  # once: a broker that is down must not cost more time each time
            reason = handshake.encrypts(self._cluster, self.last)
            return self._error(reason) if reason else error
        return error

    def _of_tls(self, error: KafkaError) -> str:
        trouble = handshake.trouble(self._cluster, error.str())
        if not trouble:  # a broker that goes down breaks handshakes, too
            self._refused = None
        return trouble

    def _error(self, reason: str) -> PermanentError:
        return PermanentError(f"kafka {self._cluster.bootstrap}: {reason}")


def _denial(error: KafkaError, cluster: Cluster) -> str:
    words = _FRAME.sub("", _FRAME.sub("", error.str()))
    return (
        f"the broker refuses this client: {words}; check sasl.username, sasl.password and "
        f"sasl.mechanism{_hint(cluster)}"
    )


def _hint(cluster: Cluster) -> str:
    """A Secret often has a line break at its end, that nobody sees."""
    for name, value in cluster.security:
        if name.startswith("sasl.") and value != value.strip():
            return f"; {name} has a space or a line break around it, which is sent too"
    return ""
