"""Explains which operators accelerators support, and why not the others: `explain_offload`, its report, and its edits.
"""

from tilewright.relay.offload.assignments import partition, table_of
from tilewright.relay.offload.changes import Edit
from tilewright.relay.offload.difference import Kind
from tilewright.relay.offload.explain import explain_offload
from tilewright.relay.offload.report import Offload, OffloadError, Record, Taken

__all__ = ["Edit", "Kind", "Offload", "OffloadError", "Record", "Taken", "explain_offload", "partition", "table_of"]
