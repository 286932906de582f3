"""Table files in object stores only: a catalog's answer must not choose files of this machine."""

from __future__ import annotations

from typing import NoReturn

from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO

from dataflow_assets.errors import PermanentError


class RemoteFiles(PyArrowFileIO):
    """PyIceberg's own files, without those of the machine: paths come from the catalog."""

    def _initialize_local_fs(self) -> NoReturn:
        raise PermanentError(
            "the catalog names a local path for a file of the table; files must be in an object "
            "store such as s3://"
        )


PROPERTIES = {PY_IO_IMPL: f"{RemoteFiles.__module__}.{RemoteFiles.__qualname__}"}
"""Go over whatever a catalog asks for: it may name any class that can be imported."""
