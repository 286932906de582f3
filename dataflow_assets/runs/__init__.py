"""One run of a flow: the loop, its retries, replays, and where flows stand."""
