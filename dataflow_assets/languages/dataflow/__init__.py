"""DataFlow manifests: YAML as the DataFlow Operator on Kubernetes reads it."""
