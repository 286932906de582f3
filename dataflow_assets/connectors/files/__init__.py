"""Files of JSON lines, in a folder of S3 or of the disk."""

from dataflow_assets.connectors.files.sink.sink import FilesSink
from dataflow_assets.connectors.files.source.source import FilesSource

__all__ = ["FilesSink", "FilesSource"]
