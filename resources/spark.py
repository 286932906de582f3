"""SparkResource: a live session for assets, wherever Spark runs."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field, PrivateAttr

from dataflow_assets.spark import Spark, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One Spark session per run, made when it is first used.

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

    def session(self) -> "SparkSession":
        """A live session; raises TransientError when there is none to be had right now."""
        if self._spark is None:
            self._spark = Spark(SparkSettings(self.where, self.conf))
        return self._spark.session()

    @property
    def spark_session(self) -> "SparkSession":
        """The same, under the name that dagster-pyspark gives it."""
        return self.session()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:  # noqa: ARG002
        """Ends the session; the warm server stays for the next run."""
        if self._spark is not None:
            self._spark.close()
