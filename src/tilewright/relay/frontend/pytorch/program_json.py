"""Rewrites the JSON texts of an exported program from checked parts, before torch reads them.

torch generates Python source from names in these texts, looks operators up by attribute, and passes sizes to sympy. It
also imports modules named in argument trees, and runs the guards. So every string must have the form that its position
allows. Trees and guards are removed, and unknown fields are dropped.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from typing import Any, Final

from tilewright.base.errors import ModelError
from tilewright.base.json_reading import read_json
from tilewright.relay.frontend.pytorch.pickles import check_extent
from tilewright.relay.frontend.pytorch.script_code import UNSAFE_NAMESPACES
from tilewright.relay.frontend.pytorch.size_expressions import canonical_size, is_symbol

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_PLAIN: Final = re.compile(r"[\w.+\-]{0,512}", re.ASCII)
_ENTRY: Final = re.compile(r"[A-Za-z0-9_]\w{0,255}", re.ASCII)
_TORCH_OPERATOR: Final = re.compile(
    r"torch\.ops\.([a-z][a-z0-9_]*)\.(_{0,2}[A-Za-z][A-Za-z0-9_]*)((\.[A-Za-z][A-Za-z0-9_]*)?)", re.ASCII)
_PLAIN_OPERATORS: Final = frozenset(
    [f"_operator.{n}" for n in ("eq", "ne", "le", "ge", "lt", "gt", "neg", "pos", "mul", "add", "sub", "floordiv",
                                "mod", "pow", "truediv", "and_", "or_", "lshift", "rshift", "getitem")]
    + [f"math.{n}" for n in ("trunc", "ceil", "floor")]
    + [f"torch.sym_{n}" for n in ("not", "int", "float", "ite", "max", "min", "sqrt", "sum")]
    + ["torch._sym_sqrt"])
_UNSAFE_NAMESPACES: Final = UNSAFE_NAMESPACES | {"prim"}
_HIGHER_ORDER: Final = frozenset({
    "cond", "while_loop", "map_impl", "scan", "associative_scan", "out_dtype", "wrap_with_set_grad_enabled",
    "wrap_with_autocast", "invoke_subgraph", "hints_wrapper", "strict_mode",
    "flex_attention", "auto_functionalized", "auto_functionalized_v2",
})
"""Operators that take programs. Others would run compiled libraries, or kernels in Triton or assembly."""
_UNSAFE_OPERATORS: Final = frozenset({"from_file", "save", "load", "_save", "_load", "load_tensor"})
_DUNDERS: Final = re.compile(r"__(and|or|xor|lshift|rshift|iand|ior|ixor|ilshift|irshift)__")
_NAME_KEYS: Final = frozenset({"name", "as_name"})
_NAMED_MAPS: Final = frozenset({"tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values",
                                "custom_obj_values"})
_DROPPED: Final[dict[str, Any]] = {"metadata": {}, "treespec_namedtuple_fields": {}, "module_call_graph": []}
_MAX_DEPTH: Final = 150
_MAX_INTEGER: Final = 1 << 64
_MAX_VALUES: Final = 10_000_000
_LEAF: Final[dict[str, Any]] = {"type": None, "context": None, "children_spec": []}


def checked_program(file: str, data: bytes) -> bytes:
    """Rewrite `model.json`. Raises `ModelError` for invalid text, and for anything that torch would execute."""
    whole = _object(file, data)
    copied = _Copy(file).value(whole, "", _MAX_DEPTH, False)
    module = copied.get("graph_module")
    ranges = copied.get("range_constraints", {})
    if not isinstance(module, dict) or not isinstance(ranges, dict):
        raise ModelError(f"{file} is damaged: it has no graph", code="TW0103")
    for symbol in ranges:
        if not is_symbol(symbol):
            raise _refused(file, "the symbol", symbol, "a symbol must be an identifier with a number of up to 6 digits")
    module["module_call_graph"] = [_root_call(file, module.get("signature"))]
    kept = {k: copied[k] for k in ("graph_module", "opset_version", "range_constraints", "schema_version", "verifiers")
            if k in copied}
    return json.dumps({**kept, "guards_code": []}).encode()


def checked_payloads(file: str, data: bytes, sizes: Mapping[str, int]) -> tuple[bytes, list[str]]:
    """Rewrite the table of weights or constants, and list its entries. `sizes` has the bytes of each entry."""
    config = _Copy(file).value(_object(file, data), "", _MAX_DEPTH, False).get("config")
    if not isinstance(config, dict):
        raise ModelError(f"{file} is damaged: it has no table of tensors", code="TW0103")
    for name, payload in config.items():
        entry = payload.get("path_name") if isinstance(payload, dict) else None
        if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
            raise _refused(file, "the entry", str(entry), "the name of an entry must consist of letters and digits")
        if payload.get("use_pickle") is not False or entry.lower().startswith(("custom_obj", "opaque_obj")):
            raise _refused(file, f"'{name}' in the entry", entry,
                           "reading it would run code; export the model with plain tensors")
        if entry not in sizes:
            raise ModelError(f"{file} is damaged: the archive has no entry {entry!r}", code="TW0103")
        _check_memory(file, name, payload.get("tensor_meta"), sizes[entry])
    return json.dumps({"config": config}).encode(), sorted({p["path_name"] for p in config.values()})


def _check_memory(file: str, name: str, meta: Any, nbytes: int) -> None:
    """Raise `ModelError` if a tensor exceeds its entry: torch would fill missing bytes and repeat elements."""
    sizes, strides, offset = ((meta.get(k) for k in ("sizes", "strides", "storage_offset")) if isinstance(meta, dict)
        else (None,) * 3)
    numbers = _numbers(sizes) + _numbers(strides) + _numbers([offset])
    if (numbers[-1] is None or None in numbers or not isinstance(sizes, list) or not isinstance(strides, list)
            or len(sizes) != len(strides)):
        raise ModelError(f"{file} is damaged: the tensor '{name}' has {nbytes} bytes, but sizes or strides that are "
                         "not numbers", code="TW0103")
    known = tuple(n for n in numbers if n is not None)
    check_extent(f"{file}: '{name}'", known[: len(sizes)], known[len(sizes) : -1], known[-1], nbytes, 1)


def _numbers(values: Any) -> list[int | None]:
    found = [v.get("as_int") if isinstance(v, dict) else None for v in values] if isinstance(values, list) else [None]
    return [n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 else None for n in found]


def _object(file: str, data: bytes) -> dict[str, Any]:
    if sum(map(data.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise ModelError(f"{file} is refused: it has more than {_MAX_VALUES} values; export the program without tables "
                         "of Python values", code="TW0104")
    try:
        whole = read_json(data)
    except ValueError as error:
        raise ModelError(f"{file} is damaged: it is not valid JSON ({str(error)[:200]})", code="TW0103") from error
    if not isinstance(whole, dict):
        raise ModelError(f"{file} is damaged: it is not a JSON object", code="TW0103")
    return whole


def _refused(file: str, what: str, text: str, why: str) -> ModelError:
    return ModelError(f"{file} is refused: {what} is {text[:80]!r}; {why}", code="TW0104")


class _Copy:
    """Copies JSON values, and checks that each string has the form that its key allows."""

    def __init__(self, file: str) -> None:
        self.file = file

    def value(self, value: Any, key: str, depth: int, is_free: bool) -> Any:
        """Copy the value of `key`. `is_free`: strings are arguments of operators, which torch quotes."""
        if depth == 0:
            raise ModelError(f"{self.file} is damaged: its values are nested more than {_MAX_DEPTH} deep",
                             code="TW0103")
        if key in _DROPPED:
            return _DROPPED[key]
        if isinstance(value, str):
            return self._string(value, key, is_free)
        if isinstance(value, list):
            return [self.value(v, key, depth - 1, is_free) for v in value]
        if isinstance(value, dict):
            if "expr_str" in value:
                value = {**value, "expr_str": self._size(value["expr_str"])}
            free = (is_free or key == "nodes") and key != "as_graph"
            return {self._key(k, key): v if k == "expr_str" else self.value(v, k, depth - 1, free)
                    for k, v in value.items()}
        if isinstance(value, int) and abs(value) >= _MAX_INTEGER:
            raise ModelError(f"{self.file} is damaged: it has a number of more than 64 bits", code="TW0103")
        return value

    def _key(self, text: str, holder: str) -> str:
        form = _IDENTIFIER if holder in _NAMED_MAPS or holder == "as_string_to_argument" else _PLAIN
        if not form.fullmatch(text) or _has_dunder(text):
            raise _refused(self.file, "a name", text, "a name must be an identifier")
        return text

    def _string(self, text: str, key: str, is_free: bool) -> str:
        if key in ("as_string", "as_strings") and is_free:
            return text
        if key in ("target", "as_operator"):
            return self._operator(text)
        if key in _NAME_KEYS:
            if text and (not _IDENTIFIER.fullmatch(text) or keyword.iskeyword(text) or _has_dunder(text)):
                raise _refused(self.file, "a name", text, "a name must be an identifier")
        elif key not in ("torch_version", "guards_code") and (not _PLAIN.fullmatch(text) or _has_dunder(text)):
            raise _refused(self.file, f"'{key}'", text, "only letters, digits, dots and hyphens are allowed")
        return text

    def _operator(self, text: str) -> str:
        found = _TORCH_OPERATOR.fullmatch(text)
        if text in _PLAIN_OPERATORS:
            return text
        is_safe = found and found[
            1] not in _UNSAFE_NAMESPACES and found[
                2].removesuffix("_") not in _UNSAFE_OPERATORS and (found[1] != "higher_order"
                    or found[2] in _HIGHER_ORDER)
        if (not found or not is_safe or (found[2].startswith("__") and not _DUNDERS.fullmatch(found[2]))
                or "__" in found[1] or "__" in found[3]):
            raise _refused(self.file, "an operator", text, "an operator must be in torch.ops without side effects, or "
                                                           "be arithmetic of sizes")
        return text

    def _size(self, text: Any) -> str:
        try:
            return canonical_size(text if isinstance(text, str) else "")
        except ValueError as error:
            raise ModelError(f"{self.file} is refused: it has the size {str(text)[:80]!r}, which is not valid "
                             f"arithmetic of sizes ({error})", code="TW0104") from error


def _has_dunder(text: str) -> bool:
    return any(part.startswith("__") and part.endswith("__") for part in text.split("."))


def _root_call(file: str, signature: Any) -> dict[str, Any]:
    """The signature of the whole program, with plain tuples, because trees in a file may name modules to import."""
    if not isinstance(signature, dict) or not all(isinstance(signature.get(k), list)
                                                  for k in ("input_specs", "output_specs")):
        raise ModelError(f"{file} is damaged: it has no signature", code="TW0103")
    inputs = sum(bool({"user_input", "constant_input"} & set(s)) for s in signature["input_specs"]
                 if isinstance(s, dict))
    outputs = sum(bool({"user_output", "loss_output"} & set(s)) for s in signature["output_specs"]
                  if isinstance(s, dict))
    nothing = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    given = [1, _tuple([_tuple([_LEAF] * inputs), nothing])]
    return {"fqn": "", "signature": {
        "inputs": [], "outputs": [], "in_spec": json.dumps(given),
        "out_spec": json.dumps([1, _tuple([_LEAF] * outputs)]), "forward_arg_names": None,
    }}


def _tuple(children: list[Any]) -> dict[str, Any]:
    return {"type": "builtins.tuple", "context": "null", "children_spec": children}
