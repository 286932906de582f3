"""Manifest languages: each is a package that turns its files into flows."""
