"""Computes expressions of Python syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


class ExprEvaluator:
    """Computes an expression with the values of its names."""

    @staticmethod
    def eval(parser: Any, value_table: Mapping[str, Any], node: ast.expr | ast.Expression) -> Any:
        """Return the value of an expression. Python's own functions have no names but those of `value_table`.

        `parser` is TVM's first argument, which has no effect. Raises the errors of the expression, such as `NameError`.
        """
        tree = node if isinstance(node, ast.Expression) else ast.Expression(node)
        return eval(compile(ast.fix_missing_locations(tree), "<expression>", "eval"), {
            "__builtins__": {}, **value_table})
