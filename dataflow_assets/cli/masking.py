"""Secret values taken out of what the command line says."""

from dataflow_assets.masking import mask

__all__ = ["mask"]
