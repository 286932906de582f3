"""Measurements of whole flows, each beside its own bound, taken in the same run."""
