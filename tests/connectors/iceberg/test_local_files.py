"""A catalog does not choose which files of this machine are read, written or imported."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from dataflow_assets.connectors.iceberg.client import REMOTE_FILES, RemoteFiles, connect
from dataflow_assets.errors import PermanentError
from tests.connectors.iceberg.driver import MakeSink

SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_a_local_path_is_neither_read_nor_written_nor_deleted(tmp_path: Path, form: str) -> None:
    file = tmp_path / "planted"
    file.write_text("s3cret")
    files = pickle.loads(pickle.dumps(load_file_io({**REMOTE_FILES})))  # noqa: S301 - as Spark does
    location = form.format(file)
    with pytest.raises(PermanentError, match="local path"):
        files.new_input(location).open()
    with pytest.raises(PermanentError, match="local path"):
        files.new_output(location).create(overwrite=True)
    with pytest.raises(PermanentError, match="local path"):
        files.delete(location)
    assert file.read_text() == "s3cret"


def test_a_table_does_not_choose_the_class_that_reads_it(
    catalog: Catalog, namespace: str, make: MakeSink
) -> None:
    catalog.create_table((namespace, "people"), SCHEMA, properties={})
    table = catalog.load_table((namespace, "people"))
    with table.transaction() as change:
        change.set_properties({"py-io-impl": "fractions.Fraction"})
    found = connect(make(table="people")).table((namespace, "people"))
    assert found is not None
    assert isinstance(found.io, RemoteFiles)
    assert isinstance(load_file_io(dict(found.io.properties), found.location()), RemoteFiles)
