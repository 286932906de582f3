"""Keeping tables small: snapshots expire, orphan files are deleted."""
