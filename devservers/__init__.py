"""Real servers as local processes, no containers: for tests, the demo and `dataflow servers`.

`up` starts them side by side and leaves them running, `read` finds them again, `down` ends them.
All three meet in `servers.json` of one folder, which also holds the servers' data: a second `up`
finds yesterday's tables and topics on yesterday's ports.
"""

from dataflow_assets.spark.detached import FILE
from dataflow_assets.spark.process import ServerError
from dataflow_assets.spark.server import SparkConnect
from devservers.apicurio import Apicurio
from devservers.clickhouse import ClickHouse
from devservers.folder import Servers, down, read, up
from devservers.kafka import Kafka, ProxiedKafka
from devservers.keycloak import Keycloak
from devservers.kinesis import Kinesis
from devservers.kubernetes import Kubernetes
from devservers.mariadb import MariaDB
from devservers.nessie import Nessie
from devservers.postgresql import PostgreSQL
from devservers.proxy import Proxy
from devservers.seaweedfs import SeaweedFS
from devservers.secure_kafka import SecureKafka
from devservers.spark_cluster import SparkCluster
from devservers.trino import Trino

__all__ = [
    "FILE",
    "Apicurio",
    "ClickHouse",
    "Kafka",
    "Keycloak",
    "Kinesis",
    "Kubernetes",
    "MariaDB",
    "Nessie",
    "PostgreSQL",
    "ProxiedKafka",
    "Proxy",
    "SeaweedFS",
    "SecureKafka",
    "ServerError",
    "Servers",
    "SparkCluster",
    "SparkConnect",
    "Trino",
    "down",
    "read",
    "up",
]
