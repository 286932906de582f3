"""Conditions of manifests."""
