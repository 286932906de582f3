"""The process that runs one connector: a JVM inside Python, one thread for each task.

`python -m dataflow_assets.connectors.kafka_connect.host` reads an `Order` from its input, and ends
when its input ends. What it has to say are lines of JSON (`Event`) on its output.
"""
