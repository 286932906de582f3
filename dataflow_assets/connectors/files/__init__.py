"""Files of JSON lines, in a folder of S3 or of the disk."""

from dataflow_assets.connectors.files.sink.sink import FilesSink

__all__ = ["FilesSink"]
