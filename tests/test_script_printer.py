"""`tvm.script.printer`: trees of Python programs, and their texts."""

from __future__ import annotations

import ast
import random
import textwrap

import pytest

from tilewright.base.errors import CompileError
from tilewright.base.object_path import ObjectPath
from tilewright.tir.script.printer import doc as D
from tilewright.tir.script.printer.doc import OperationKind as K
from tilewright.tir.script.printer.doc_printer import to_python_script

UNARY = [k for k in K if K._UnaryStart < k < K._UnaryEnd]
BINARY = [k for k in K if K._BinaryStart < k < K._BinaryEnd]
TOKENS = dict(zip(BINARY, "+ - * / // % ** << >> & | ^ < <= == != > >= and or".split(), strict=True))
x, y, z = (D.IdDoc(n) for n in "xyz")


def lines(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def random_expr(rng: random.Random, depth: int) -> tuple[D.ExprDoc, str]:
    """Return a tree, and its text with parentheses around every operand."""
    if not depth or rng.random() < 0.1:
        return rng.choice([(x, "x"), (D.LiteralDoc(2), "2"), (D.LiteralDoc(-1.5), "(-1.5)")])
    (a, at), (b, bt), (c, ct) = (random_expr(rng, depth - 1) for _ in range(3))
    match rng.randrange(9):
        case 0:
            k = rng.choice(UNARY)
            return D.OperationDoc(k, [a]), f"({ {K.USub: '-', K.Invert: '~', K.Not: 'not '}[k] }{at})"
        case 1:
            return D.OperationDoc(K.IfThenElse, [a, b, c]), f"({bt} if {at} else {ct})"
        case 2:
            return D.LambdaDoc([x, y], a), f"(lambda x, y: {at})"
        case 3:
            return a.call(b, key=c), f"({at})({bt}, key={ct})"
        case 4:
            return a[b, D.SliceDoc(c, None, b)], f"({at})[{bt}, {ct}::{bt}]"
        case 5:
            return a.attr("size"), f"({at}).size"
        case _:
            k = rng.choice(BINARY)
            return D.OperationDoc(k, [a, b]), f"({at} {TOKENS[k]} {bt})"


class Flat(ast.NodeTransformer):
    """Writes `(a and b) and c` as `a and b and c`, which Python reads as one operator."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        self.generic_visit(node)
        first = node.values[0]
        if isinstance(first, ast.BoolOp) and type(first.op) is type(node.op):
            node.values[:1] = first.values
        return node


def tree(text: str) -> str:
    return ast.dump(Flat().visit(ast.parse(text)))


@pytest.mark.parametrize("seed", range(40))
def test_python_reads_the_expression_that_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        doc, whole = random_expr(rng, 4)
        assert tree(to_python_script(doc)) == tree(whole)


def test_a_conditional_value_of_a_condition_is_in_parentheses() -> None:
    inner = D.OperationDoc(K.IfThenElse, [y, y, y])
    assert to_python_script(D.OperationDoc(K.IfThenElse, [x, inner, z])) == "(y if y else y) if x else z"


@pytest.mark.parametrize("value", ["", 'say "x"', "a\n\t\\b\r", "\x88\u2028", 0, -3, 3.25, True, None])
def test_a_literal_reads_back(value: object) -> None:
    assert ast.literal_eval(to_python_script(D.LiteralDoc(value))) == value  # type: ignore[arg-type]


def test_statements() -> None:
    one = D.AssignDoc(D.TupleDoc([x, y]), z)
    one.comment = "both"
    loop = D.ForDoc(D.TupleDoc([x, y]), z, [D.IfDoc(x, [], [D.ReturnDoc(D.TupleDoc([x]))])])
    loop.comment = "first\nsecond"
    scope = D.ScopeDoc(y, x.call(), [D.WhileDoc(x, []), D.AssertDoc(x, D.LiteralDoc("no"))])
    func = D.FunctionDoc(
        D.IdDoc("f"), [D.AssignDoc(x, D.LiteralDoc(1), z)], [y], D.LiteralDoc(None), [one, loop, scope]
    )
    func.comment = "A function.\n\nIts details."
    made = D.ClassDoc(D.IdDoc("C"), [], [func, D.CommentDoc("end"), D.ExprStmtDoc(x[()])])
    assert to_python_script(made) == lines('''
        class C:
            @y
            def f(x: z = 1) -> None:
                """
                A function.

                Its details.
                """
                x, y = z  # both
                # first
                # second
                for x, y in z:
                    if x:
                        pass
                    else:
                        return (x,)
                with x() as y:
                    while x:
                        pass
                    assert x, "no"

            # end
            x[()]
        ''')


def get_root() -> ObjectPath:
    return ObjectPath.root()


def named(name: str, *steps: str) -> D.IdDoc:
    found, path = D.IdDoc(name), get_root()
    for s in steps:
        path = path.attr(s)
    found.source_paths = [path]
    return found


def test_the_nodes_of_the_longest_path_are_underlined() -> None:
    doc = D.StmtBlockDoc(
        [
            D.ExprStmtDoc(named("whole", "a")),
            D.ExprStmtDoc(D.OperationDoc(K.Add, [named("u", "a", "b"), named("v", "a", "b")])),
        ]
    )
    path = ObjectPath.root().attr("a").attr("b").attr("c")
    assert to_python_script(doc, path_to_underline=[path]) == "whole\nu + v\n^   ^"
    assert to_python_script(doc, path_to_underline=[ObjectPath.root().attr("c")]) == "whole\nu + v"


def test_lines_far_from_underlined_ones_are_left_out() -> None:
    doc = D.StmtBlockDoc([D.ExprStmtDoc(named(f"x{k}", str(k))) for k in range(11)])
    shown = to_python_script(
        doc, print_line_numbers=True, num_context_lines=1, path_to_underline=[ObjectPath.root().attr(k) for k in "36"]
    )
    assert shown == lines("""
        (... 2 lines skipped ...)
         3 x2
         4 x3
           ^^
         5 x4
         6 x5
         7 x6
           ^^
         8 x7
        (... 3 lines skipped ...)
        """)


def test_invalid_trees() -> None:
    with pytest.raises(ValueError, match=r"an AssignDoc needs a value \(rhs\) or an annotation"):
        D.AssignDoc(x, None)
    with pytest.raises(ValueError, match="an AssignDoc to a tuple cannot have an annotation"):
        D.AssignDoc(D.TupleDoc([x, y]), z, z)
    with pytest.raises(ValueError, match="an IfDoc needs a statement in one of its branches"):
        D.IfDoc(x, [])
    stmt = D.ReturnDoc(x)
    stmt.comment = "a\nb"
    with pytest.raises(ValueError, match=r"the comment of a ReturnDoc cannot have newlines: 'a\\nb'"):
        to_python_script(stmt)
    with pytest.raises(CompileError, match="the operator Add has 2 operands, but was given 1"):
        to_python_script(D.OperationDoc(K.Add, [x]))
    with pytest.raises(TypeError, match=r"a IdDoc has no elements; doc\[index\] is an expression"):
        list(x)
