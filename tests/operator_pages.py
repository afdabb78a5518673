"""The operator reference in `docs/operators/`, derived from the operator classes: `python tests/operator_pages.py`
writes it.

Each attribute is described by a string literal below its declaration, each type rule by the docstring of `infer`; both
may be inherited.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

from tilewright.relay import qnn
from tilewright.relay.op.dynamic import Dynamic
from tilewright.relay.op.registry import OPS, Fusion, Op

assert qnn.op is not None  # its operators are registered by this import
FOLDER: Final = Path(__file__).parent.parent / "docs" / "operators"
INDEX: Final = FOLDER.parent / "operator_reference.md"
FAMILIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "elementwise": (
        "Elementwise operators", ("elementwise", "broadcast", "fast_math", "fixed_point", "complex_numbers", "special")
    ),
    "products": ("Matrix products, convolutions and attention", (
        "nn_matmul", "nn_attention", "nn_conv", "nn_conv_blocks", "nn_deformable", "nn_displacement", "nn_sparse",
        "nn_binary", "nn_gradients",
    )),
    "normalization": ("Pooling, normalization and losses", ("nn_pool", "nn_norm", "nn_loss")),
    "reductions": ("Reductions, scans and sorting", ("reduction", "scans", "sorting")),
    "shapes": ("Shapes, layouts and new tensors", ("transform", "shaping", "blocks", "create", "vm")),
    "indexing": (
        "Indexing, scattering and selection", ("indexing", "lookup", "scattering", "selection", "data_dependent")
    ),
    "linear_algebra": ("Linear algebra and signals", ("linalg", "einsum", "signal")),
    "vision": ("Images and object detection", ("image", "image_sampling", "image_decoding", "vision", "vision_maps")),
    "random": ("Random numbers", ("random",)),
    "quantized": ("Quantized tensors", ("scaling", "arithmetic", "functions", "products")),
    "classic": (
        "Strings, dictionaries and classic models", ("text", "dictionaries", "native_texts", "ensembles", "coupling")
    ),
    "dynamic": ("Attributes and nodes known at run time", ("dynamic", "deferred")),
    "marks": ("Marks, checks and external calls", ("annotation", "memory", "runtime_checks", "external")),
}
FUSION: Final = {
    Fusion.ELEMWISE: "elementwise", Fusion.BROADCAST: "broadcasting", Fusion.INJECTIVE: "injective",
    Fusion.REDUCE: "reduction", Fusion.OUT_FUSABLE: "accepts elementwise consumers",
    Fusion.OPAQUE: "a kernel of its own",
}
BEHIND: Final = (
    "Derived from the operator classes by `python tests/operator_pages.py`; see [the "
    "index](../operator_reference.md).\n"
)


@cache
def _declared(module: str) -> dict[tuple[str, str], str]:
    """The descriptions of a module's attributes, by class and attribute."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found = {}
    for cls in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, text in zip(cls.body, cls.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[cls.name, name] = " ".join(words.split())
    return found


def description(cls: type[Op], attribute: str) -> str | None:
    """The description of an attribute, in the class itself or in the nearest base that has one."""
    ways = (_declared(base.__module__).get((base.__name__, attribute)) for base in cls.__mro__ if issubclass(base, Op))
    return next((text for text in ways if text is not None), None)


def type_rule(cls: type[Op]) -> str | None:
    """The docstring of `infer`, where a class below `Op` defines it."""
    return None if cls.infer is Op.infer or cls.infer.__doc__ is None else inspect.cleandoc(cls.infer.__doc__)


def native_code(cls: type[Op]) -> str:
    """The back ends that have a kernel of an operator, or how it runs without one."""
    if cls.compute is not Op.compute:
        return "LLVM" if cls.reads_texts else "LLVM, C"
    if issubclass(cls, Dynamic):
        return "LLVM, C once its attributes are known; numpy before"
    return "replaced by simpler operators" if cls.simplify is not Op.simplify else "none; runs in numpy"


def _signature(cls: type[Op]) -> str:
    parameters = [p for p in inspect.signature(cls.infer).parameters.values() if p.name != "self"]
    inputs = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    given = [
        f.name if f.default is dataclasses.MISSING else f"{f.name}={f.default!r}" for f in dataclasses.fields(cls)
    ]
    return f"{cls.name}({', '.join(inputs + given)})"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def common_rule(members: list[type[Op]]) -> str | None:
    """The long type rule that ten or more operators of a family share, which its page has once; None without one."""
    found = Counter(rule for rule in map(type_rule, members) if rule is not None and len(rule) > 60).most_common(1)
    return next((rule for rule, count in found if count >= 10), None)


def _entry(cls: type[Op], common: str | None) -> str:
    lines = [f"### `{cls.name}`\n\n```\n{_signature(cls)}\n```\n\n{inspect.getdoc(cls)}\n\n"]
    rows = [
        f"| `{f.name}` | `{_cell(f.type)}` | "
        f"{'required' if f.default is dataclasses.MISSING else f'`{_cell(repr(f.default))}`'} "
        f"| {_cell(description(cls, f.name))} |\n"
        for f in dataclasses.fields(cls)
    ]
    if rows:
        lines += ["| attribute | type | default | meaning |\n|---|---|---|---|\n", *rows, "\n"]
    result = "" if type_rule(cls) == common else f"- Result: {type_rule(cls)}\n"
    lines.append(f"{result}- Fusion: {FUSION[cls.kind]}\n- Native code: {native_code(cls)}\n\n")
    return "".join(lines)


def family_of(cls: type[Op]) -> str:
    """The family whose page has the operator. Raises `LookupError` for a module that no family names."""
    _, _, folder, module = cls.__module__.rsplit(".", 3)
    for family, (_, modules) in FAMILIES.items():
        if module in modules and (folder == "qnn") is (family == "quantized"):
            return family
    raise LookupError(f"no family of tests/operator_pages.py has the module {cls.__module__} of {cls.name}")


def pages() -> dict[Path, str]:
    """All pages of the reference, by path."""
    members: dict[str, list[type[Op]]] = {family: [] for family in FAMILIES}
    for _, cls in sorted(OPS.items()):
        members[family_of(cls)].append(cls)
    found = {}
    rows = []
    for family, (title, _) in FAMILIES.items():
        common = common_rule(members[family])
        head = f"# {title}\n\n{BEHIND}\n" + (f"Result, unless an entry gives its own: {common}\n\n" if common else "")
        entries = "".join(_entry(cls, common) for cls in members[family])
        found[FOLDER / f"{family}.md"] = f"{head}{entries.rstrip()}\n"
        names = ", ".join(
            f"[`{cls.name}`](operators/{family}.md#{cls.name.replace('.', '')})" for cls in members[family]
        )
        rows.append(f"## [{title}](operators/{family}.md)\n\n{names}\n\n")
    found[INDEX] = _INDEX_HEAD + "".join(rows).rstrip() + "\n"
    return found


_INDEX_HEAD: Final = """# Operator reference

After reading this page you can look up any Relay operator. The entry of an operator has its signature, formula, attributes, result type,
fusion class, and the back ends with native code for it.

The function of an operator takes its inputs, then its attributes: `relay.nn.softmax(x, axis=1)`. `tvm.ir.Op.get(name)` is its class.
`python tests/operator_pages.py` derives the pages from the classes in `src/tilewright/relay/op` and `relay/qnn`.

"""  # noqa: E501


def write() -> None:
    """Write all pages, and remove those of families that no longer exist."""
    FOLDER.mkdir(exist_ok=True)
    found = pages()
    for old in set(FOLDER.glob("*.md")) - set(found):
        old.unlink()
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
