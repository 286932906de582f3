"""The custom resources of the DataFlow Operator: their definitions, and flows made of them."""
