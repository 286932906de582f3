"""Metrics of flows: declared, recorded, kept, and shown to Prometheus."""
