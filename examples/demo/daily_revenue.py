"""A table built on another one: what was paid per day and country, refreshed once a minute.

Spark reads the Iceberg table that `order-history.yaml` fills and writes to PostgreSQL. The key says
where the rows go: system, connection (as the manifests name it), schema, table.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f


@dg.asset(
    key=["postgresql", "shop", "shop", "daily_revenue"],
    ins={"orders": dg.AssetIn(key=["iceberg", "lake", "shop", "orders"])},
    io_manager_key="postgresql",
    group_name="postgresql_shop",
    automation_condition=dg.AutomationCondition.on_cron("* * * * *"),
)
def daily_revenue(orders: DataFrame) -> DataFrame:
    paid = orders.where(orders.status == "paid")
    by = (f.to_date("changed_at").alias("day"), f.col("customer.country").alias("country"))
    return paid.groupBy(*by).agg(f.count("*").alias("orders"), f.sum("total").alias("revenue"))
