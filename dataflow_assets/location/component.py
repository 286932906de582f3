"""A component of Dagster: the flows of some folders in a project made of `defs.yaml` files."""

from pathlib import Path

import dagster as dg
from pydantic import Field
from typing_extensions import override

from dataflow_assets.location.definitions import build

EXAMPLE = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: orders
spec:
  maintenance: { suspended: true } # nothing is read or written until this line is gone
  source:
    type: kafka
    config:
      brokers: ["kafka.example.com:9092"]
      topic: orders
      consumerGroup: orders-to-postgresql
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: { name: shop-database, key: connectionString }
      table: public.orders
      autoCreateTable: true
      upsertMode: true
      conflictKey: id
---
apiVersion: v1
kind: Secret
metadata:
  name: shop-database
stringData:
  connectionString: postgresql://flows:change-me@db.example.com:5432/shop
"""


class FlowsScaffolder(dg.Scaffolder[dg.Model]):
    """`dg scaffold defs dataflow_assets.location.component.FlowsComponent NAME`."""

    @override
    def scaffold(self, request: dg.ScaffoldRequest[dg.Model]) -> None:
        """Writes the component's YAML, and a folder with one manifest to edit."""
        dg.scaffold_component(request, {"folders": ["flows"]})
        flows = Path(request.target_path) / "flows"
        flows.mkdir(parents=True, exist_ok=True)
        manifest = flows / "orders.yaml"
        if not manifest.exists():
            manifest.write_text(EXAMPLE, encoding="utf-8")


@dg.scaffold_with(FlowsScaffolder)
class FlowsComponent(dg.Component, dg.Model, dg.Resolvable):
    """Data flows from manifests: each is an asset that keeps itself up to date, with a switch."""

    folders: list[str] = Field(default_factory=lambda: ["flows"])
    """Folders with manifests and with Python files of assets, below the folder of `defs.yaml`."""

    @override
    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Called once in each process that loads the location; reads files and nothing else."""
        return build([context.path / folder for folder in self.folders])
