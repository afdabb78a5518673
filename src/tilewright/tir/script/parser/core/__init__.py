"""Parts of programs that read Python sources: `diagnostics.Source` and `evaluator.ExprEvaluator`.

Syntax trees are those of Python's `ast`, under TVM's name `doc_core`.
"""

from __future__ import annotations

import ast as doc_core

from tilewright.tir.script.parser.core import diagnostics, evaluator

__all__ = ["diagnostics", "doc_core", "evaluator"]
