"""The messages of one slice as chunks, one for each lane of the pass.

Without steps the bodies are decoded straight into the sink's columns. With steps each message
becomes a record, runs through the chain, and each lane decodes the JSON of its own records by the
same rules. What fails before the lanes part is rejected once, by the main one. A sink that takes
messages gets bodies, keys and headers as they were sent.
"""

from collections.abc import Sequence

from dataflow_assets.contracts import Slice, Source
from dataflow_assets.micro_batch.decode import Decoding
from dataflow_assets.micro_batch.lanes import Lane, Read, Steps
from dataflow_assets.micro_batch.message_metadata import Rows
from dataflow_assets.micro_batch.transform import Transforming, sampled

__all__ = ["Lane", "Read", "Steps", "reader", "sampled"]


def reader(
    source: Source, steps: Steps | None, lanes: Sequence[Lane], piece: Slice, slices: int
) -> Read:
    """How the messages of one slice become rows; made once per slice, inside the task."""
    if steps is None:
        return Decoding(lanes, source.null_messages, piece, slices)
    return Transforming(
        steps, source.null_messages, lanes, Rows(source, piece, slices, steps.reads)
    )
