"""The Spark session that the command line's runs share."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions:
    """One session, made when the first run asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """The live session."""
        from pyspark.sql import SparkSession

        with self._lock:
            if self._session is None:
                remote = os.environ["SPARK_REMOTE"]
                self._session = SparkSession.builder.remote(remote).create()
            return self._session

    def close(self) -> None:
        """Frees the session; safe twice."""
        with self._lock:
            if self._session is not None:
                self._session.stop()
                self._session = None
