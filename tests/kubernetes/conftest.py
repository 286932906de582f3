"""The stand-in for an API server."""

from tests.kubernetes.stand_in import api

__all__ = ["api"]
