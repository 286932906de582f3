"""Sends headers whose names are any bytes, as clients in C or Go can; Python's takes only text."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka

_TOPIC, _VALUE, _FLAGS, _HEADER, _LAST, _COPY = 1, 4, 7, 9, 0, 2


def send(bootstrap: str, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """One record."""
    client = ctypes.CDLL(_library())
    client.rd_kafka_conf_new.restype = client.rd_kafka_new.restype = ctypes.c_void_p
    error = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(client.rd_kafka_conf_new())
    client.rd_kafka_conf_set(settings, b"bootstrap.servers", bootstrap.encode(), error, 512)
    producer = ctypes.c_void_p(client.rd_kafka_new(0, settings, error, 512))
    words = [*_word(_TOPIC, topic.encode()), *_word(_FLAGS, ctypes.c_int(_COPY))]
    words += [*_word(_VALUE, value), ctypes.c_size_t(len(value))]
    for name, content in headers:
        words += [*_word(_HEADER, name), ctypes.c_char_p(content), ctypes.c_ssize_t(len(content))]
    assert client.rd_kafka_producev(producer, *words, ctypes.c_int(_LAST)) == 0, error.value
    assert client.rd_kafka_flush(producer, 20_000) == 0
    client.rd_kafka_destroy(producer)


def _word(tag: int, value: object) -> list[object]:
    return [ctypes.c_int(tag), ctypes.c_char_p(value) if isinstance(value, bytes) else value]


def _library() -> str:
    """The one that Python's client has loaded."""
    assert confluent_kafka.libversion()
    found = re.search(r"/\S*librdkafka[^\s/]*\.so\S*", Path("/proc/self/maps").read_text())
    assert found
    return found[0]
