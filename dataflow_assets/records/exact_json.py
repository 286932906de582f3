"""JSON text with all digits: what travels between a source, the steps and a sink."""

from __future__ import annotations

import msgspec

exact_json = msgspec.json.Encoder(decimal_format="number").encode
"""Any value as JSON text; decimals are numbers with their own digits. Objects keep their order."""
