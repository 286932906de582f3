"""A catalog that hands out the keys of the object store: the manifest has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.errors import PermanentError
from tests.connectors.iceberg.catalog_front import CatalogFront
from tests.connectors.iceberg.driver import connection, expected, ids, opened, pump
from tests.connectors.iceberg.source_driver import ids as found_ids
from tests.connectors.iceberg.source_driver import read


@pytest.fixture
def vending(seaweedfs: devservers.SeaweedFS) -> Iterator[CatalogFront]:
    keys = {
        "s3.access-key-id": seaweedfs.access_key,
        "s3.secret-access-key": seaweedfs.secret_key,
    }
    with CatalogFront(seaweedfs, keys).running() as found:
        yield found


def _without_keys(
    vending: CatalogFront, seaweedfs: devservers.SeaweedFS, namespace: str
) -> dict[str, object]:
    config = connection(seaweedfs, namespace, "orders") | {"catalogURI": vending.uri}
    return {name: value for name, value in config.items() if "ccessKey" not in name}


@pytest.mark.parametrize("apart", [False, True], ids=["config", "storage-credentials"])
def test_a_table_is_written_and_read_by_the_keys_of_the_catalog(
    vending: CatalogFront,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    apart: bool,
) -> None:
    vending.apart = apart
    config = _without_keys(vending, seaweedfs, namespace)
    sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
    session = opened(sink)
    pump(sink, session, 0, 10)
    assert ids(catalog, namespace) == expected(10)
    found, _ = read(IcebergSource.model_validate(config))
    assert sorted(found_ids(found)) == expected(10)
    assert set(vending.asked) == {"vended-credentials"}


def test_keys_that_the_catalog_replaces_are_used_from_the_next_micro_batch_on(
    vending: CatalogFront, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    """Those of a session are good for an hour or so; a run is open for longer."""
    config = _without_keys(vending, seaweedfs, namespace)
    sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
    session = opened(sink)
    pump(sink, session, 0, 5)
    good = dict(vending.keys)
    vending.keys["s3.secret-access-key"] = "expired"
    with pytest.raises(PermanentError, match="check the credentials and what they may do"):
        pump(sink, session, 5, 5)
    vending.keys.update(good)
    pump(sink, session, 5, 5)
    assert ids(catalog, namespace) == expected(10)


@pytest.mark.parametrize("kind", ["s3", "client"])
def test_keys_of_the_manifest_win_over_a_session_of_the_catalog(
    kind: str,
    vending: CatalogFront,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
) -> None:
    """The session's token belongs to the keys that it comes with."""
    vending.keys = {
        f"{kind}.access-key-id": "other",
        f"{kind}.secret-access-key": "other",
        f"{kind}.session-token": "of the other",
    }
    config = connection(seaweedfs, namespace, "orders") | {"catalogURI": vending.uri}
    sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
    pump(sink, opened(sink), 0, 10)
    assert ids(catalog, namespace) == expected(10)
