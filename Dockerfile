# The location with all clients, Java and the jars. Manifests: /flows. History and switches: /dagster.
FROM python:3.11-slim-trixie

# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH DAGSTER_HOME=/dagster DATAFLOW_FLOWS=/flows DATAFLOW_CACHE=/app/.cache \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY dataflow_assets dataflow_assets
RUN python -m venv .venv \
 && .venv/bin/pip install --constraint constraints.txt ".[all,kubernetes,opentelemetry,webserver]" dagster-postgres \
 && .venv/bin/python -c "from dataflow_assets.spark import jars; jars.fetch('spark')"

COPY definitions.py workspace.yaml dagster.yaml ./
COPY jobs jobs
COPY resources resources
COPY sensors sensors

RUN useradd --create-home --uid 1000 flows \
 && mkdir -p /flows /dagster \
 && cp dagster.yaml /dagster/ \
 && rm -rf dataflow_assets \
 && chown -R flows /app/.cache /flows /dagster
USER 1000
VOLUME ["/dagster"]
EXPOSE 3000

CMD ["dagster", "dev", "-w", "workspace.yaml", "-h", "0.0.0.0", "-p", "3000"]
