"""SparkResource: a live session for assets, wherever Spark runs."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from dataflow_assets.spark.session import Spark, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Spark for a run: a session of its own for assets, made when it is first used.

    Temporary views and settings of one run are not seen by another; the session ends with the run.
    Offers what dagster-pyspark's resource does (`spark_session`), without importing PySpark before
    that.
    """

    where: str = Field(
        default="connect",
        description=(
            "connect: the warm Spark Connect server of this machine, started when it does not run; "
            "local: a session of the run's own; sc://host:port: a Spark Connect server; "
            "spark://host:port or another master URL: a cluster."
        ),
    )
    conf: dict[str, str] = Field(
        default_factory=dict, description="Spark settings; never those of a connection."
    )
    _spark: Spark | None = PrivateAttr(default=None)
    _shared: Spark | None = PrivateAttr(default=None)

    def session(self) -> "SparkSession":
        """The run's own live session; raises TransientError when there is none to be had now."""
        if self._spark is None:
            self._spark = Spark(SparkSettings(self.where, self.conf), own=True)
        return self._spark.session()

    def flow_session(self) -> "SparkSession":
        """The session that all flows share, with warm workers: flows leave nothing behind in it."""
        if self._shared is None:
            self._shared = Spark(SparkSettings(self.where, self.conf))
        return self._shared.session()

    @property
    def spark_session(self) -> "SparkSession":
        return self.session()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002
        """Ends the run's own session; the warm server stays for the next run."""
        for spark in (self._spark, self._shared):
            if spark is not None:
                spark.close()
