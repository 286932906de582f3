"""One file per message format: bytes to Arrow columns in a sink's schema."""
