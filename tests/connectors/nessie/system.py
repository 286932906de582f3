"""Tables of Iceberg in Nessie as ends of whole flows."""

from __future__ import annotations

import devservers
from tests.connectors.iceberg.system import Iceberg
from tests.systems import Config


class Nessie(Iceberg):
    type = "nessie"

    def at(self, role: str, config: Config) -> Config:
        from tests.connectors.nessie.driver import connection

        server: devservers.Nessie = self.request.getfixturevalue("nessie")
        self.catalog = self.request.getfixturevalue("nessie_catalog")
        return {
            **config,
            **connection(server, self.request.getfixturevalue("nessie_namespace"), role),
        }
