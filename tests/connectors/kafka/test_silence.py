"""What a person reads where no broker answers: what the client met, and what to look at."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout

import pytest
from confluent_kafka import KafkaError, KafkaException

from dataflow_assets.connectors.kafka.client_errors import ClientErrors
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.errors import translate
from dataflow_assets.errors import TransientError

HOSTS = "check hosts and ports under brokers, and whether this machine reaches them"
MET = {
    "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in "
    "state CONNECT)": f"Connect to ipv4#127.0.0.1:1 failed: Connection refused; {HOSTS}",
    "k:9092/bootstrap: Failed to resolve 'k:9092': Name or service not known (after 0ms in state "
    "CONNECT)": "Failed to resolve 'k:9092': Name or service not known; check the names under "
    "brokers",
    "k:5432/bootstrap: Receive failed: Invalid response size 1157627904 (0..100000000): increase "
    "receive.message.max.bytes (after 5ms in state APIVERSION_QUERY)": "what answers there does "
    "not speak Kafka's protocol without encryption; check the port under brokers, and whether its "
    "listener needs the block tls",
    "ssl://k:9092/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker "
    "listener? (after 1ms in state SSL_HANDSHAKE)": "SSL handshake failed: Disconnected: "
    "connecting to a PLAINTEXT broker listener?; check whether the listener at this port encrypts",
}


@pytest.mark.parametrize("complaint", MET)
@pytest.mark.parametrize(
    "error",
    [FutureTimeout(), KafkaException(KafkaError(KafkaError._TIMED_OUT))],
    ids=["waiting", "client"],
)
def test_silence_says_what_was_met_and_what_to_look_at(error: Exception, complaint: str) -> None:
    said = translate(error, "kafka k:9092: describing the topic orders", complaint)
    assert isinstance(said, TransientError)
    assert str(said) == f"kafka k:9092: describing the topic orders: no answer: {MET[complaint]}"


def test_none_of_the_brokers_being_down_is_no_complaint() -> None:
    complaints = ClientErrors(Cluster("k:9092"))
    for words, last in (("0/2 brokers are down", ""), ("2/2 brokers are down",) * 2):
        complaints.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, words))
        assert complaints.last == last
