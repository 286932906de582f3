"""IO managers: who writes what an asset returns, and hands tables to the assets downstream."""

from typing import Any

import dagster as dg

from dataflow_assets.assets import Draining, io_manager_key
from dataflow_assets.assets.graph import Graph


class FlowIOManager(dg.IOManager):
    """Consumes the lazy drain of a flow; the IO managers of table systems build on it."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Drains the flow, or writes what a user's asset returned."""
        if isinstance(obj, Draining):
            context.add_output_metadata(obj.write(context.asset_key))
        elif obj is not None:
            self.write(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """The table upstream."""
        raise dg.Failure(
            f"{context.asset_key.to_user_string()} cannot be read back as a table yet; read it "
            f"with a client of its system, and name it in `deps` instead of as an argument",
            allow_retries=False,
        )

    def write(self, context: dg.OutputContext, obj: object) -> None:
        """Writes what a user's asset returned."""
        raise dg.Failure(
            f"{context.asset_key.to_user_string()}: {type(obj).__name__} cannot be written to "
            f"this system",
            allow_retries=False,
        )


class DefaultIOManager(dg.ConfigurableIOManagerFactory[dg.IOManager]):
    """The default: small Python values as files; Spark frames not at all."""

    def create_io_manager(self, context: dg.InitResourceContext) -> dg.IOManager:
        """Files below the instance's storage folder, as Dagster's own default."""
        return _Refusing(dg.FilesystemIOManager().create_io_manager(context))


class _Refusing(dg.IOManager):
    def __init__(self, files: dg.IOManager) -> None:
        self._files = files

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if type(obj).__module__.startswith("pyspark."):
            raise dg.Failure(
                f"{context.asset_key.to_user_string()} returns a Spark {type(obj).__name__}, "
                f"which is a plan and no data: it cannot be stored as a file. Say where its rows "
                f'go: @dg.asset(io_manager_key="iceberg") or "postgresql"',
                allow_retries=False,
            )
        self._files.handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> object:
        return self._files.load_input(context)


def io_managers(graph: Graph) -> dict[str, dg.IOManager]:
    """An IO manager for each system that something is written to, by its key."""
    systems = {io_manager_key(node.branch.address) for node in graph.nodes}
    return {system: FlowIOManager() for system in sorted({*systems, "iceberg", "postgresql"})}
