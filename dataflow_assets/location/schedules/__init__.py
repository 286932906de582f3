"""Schedules of flows: the ticks of `DataFlowCron` manifests."""
