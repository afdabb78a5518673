"""Functions of `auto_scheduler` that TVM registers without a Python wrapper: facts about the stages of a state.

    auto_scheduler._ffi_api.SearchPolicyUtilsIsTiled(state.stages[2])
"""

from tilewright.search.auto_scheduler.stage_facts import (
    has_cache_read as SearchPolicyUtilsHasCacheReadStage,
)
from tilewright.search.auto_scheduler.stage_facts import (
    has_cache_write as SearchPolicyUtilsHasCacheWriteStage,
)
from tilewright.search.auto_scheduler.stage_facts import (
    has_cross_thread_reduction as SearchPolicyUtilsHasCrossThreadReduction,
)
from tilewright.search.auto_scheduler.stage_facts import (
    has_rfactor as SearchPolicyUtilsHasRfactorStage,
)
from tilewright.search.auto_scheduler.stage_facts import (
    is_tiled as SearchPolicyUtilsIsTiled,
)

__all__ = [
    "SearchPolicyUtilsHasCacheReadStage", "SearchPolicyUtilsHasCacheWriteStage",
    "SearchPolicyUtilsHasCrossThreadReduction", "SearchPolicyUtilsHasRfactorStage", "SearchPolicyUtilsIsTiled",
]
