"""Questions about relay graphs."""

from tilewright.relay.analysis.well_formed import check_well_formed, well_formed
from tilewright.relay.visitor import calls, consumers, free_vars, post_order

__all__ = ["calls", "check_well_formed", "consumers", "free_vars", "post_order", "well_formed"]
