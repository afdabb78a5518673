"""Tensor arrays of TVM's prelude: lists whose elements are tensors of one type, and the functions over them, as Relay
text.

    type tensor_float32_t { tensor_nil_float32, tensor0_float32(Tensor[(), float32]), … }          any rank up to 6
    type static_tensor_float32_any_3_t { tensor_nil_float32_any_3, tensor_constructor_float32_any_3(…) }    one shape

An array is a `List` of them. A size of `Any` is `any` in a name and `?` in a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.types import DataType, TensorType

MAX_RANK: Final = 6
DTYPES: Final = ("float32", "float16", "float64", "int32", "uint8", "int8", "int16", "uint16", "int64")
"""Dtypes whose tensor types are defined by the prelude."""
NAMES: Final = (
    "tensor_take", "tensor_expand_dims", "tensor_concatenate", "tensor_array", "tensor_array_read",
    "tensor_array_write", "tensor_array_scatter", "tensor_array_split", "tensor_array_concat", "tensor_array_stack",
    "tensor_array_gather")
"""Functions of both kinds; arrays of any rank have one `tensor_array_unstack_tensor1` to `6` for each rank, those of
one shape have `tensor_array_unstack` and `tensor_get_data`."""
VERSION: Final = '#[version = "0.0.5"]\n'


def suffix(dtype: str, shape: Sequence[Any] | None) -> str:
    """Return the end of the names of arrays of a dtype, and of one shape if it is given."""
    if shape is None:
        return dtype
    return f"{dtype}_{'_'.join(map(_size, shape)) or 'scalar'}"


def type_name(dtype: str, shape: Sequence[Any] | None) -> str:
    """Return the name of the data type of the elements."""
    return f"{'tensor' if shape is None else 'static_tensor'}_{suffix(dtype, shape)}_t"


def _size(d: Any) -> str:
    return str(int(d)) if isinstance(d, int) or str(d).isdigit() else "any"


def _tensor(dtype: str, shape: Sequence[Any]) -> str:
    sizes = ["?" if _size(d) == "any" else _size(d) for d in shape]
    return f"Tensor[({', '.join(sizes)}{',' if len(sizes) == 1 else ''}), {dtype}]"


def definition(dtype: str, shape: Sequence[Any] | None) -> str:
    """Return the text of the data type of the elements."""
    n = suffix(dtype, shape)
    if shape is None:
        cases = [f"tensor{r}_{n}({_tensor(dtype, ['?'] * r)})" for r in range(MAX_RANK + 1)]
    else:
        cases = [f"tensor_constructor_{n}({_tensor(dtype, shape)})"]
    return f"type {type_name(dtype, shape)} {{\n  " + ",\n  ".join([f"tensor_nil_{n}", *cases]) + ",\n}\n"


def _arrays(n: str, t: str) -> str:
    """Return the functions that make, read and write arrays of elements of the type `t`."""
    return f"""
def @tensor_array_{n}(%n: int32) -> List[{t}] {{
  if (%n == 0) {{ Nil }} else {{ Cons(tensor_nil_{n}, @tensor_array_{n}(%n - 1)) }}
}}
def @tensor_array_read_{n}(%ta: List[{t}], %n: int32) -> {t} {{ @nth(%ta, %n) }}
def @tensor_array_write_{n}(%ta: List[{t}], %n: int32, %v: {t}) -> List[{t}] {{ @update(%ta, %n, %v) }}
"""


def scatter(n: str, t: str, indices: str) -> str:
    """Return the function that writes the elements of a list at indices of the type `indices`."""
    return f"""
def @tensor_array_scatter_helper_{n}(%ta: List[{t}], %k: int32, %end: int32, %at: {indices}, %v: List[{t}])
    -> List[{t}] {{
  if (%k == %end) {{ %ta }} else {{
    @tensor_array_scatter_helper_{n}(
      @tensor_array_write_{n}(%ta, take(%at, %k), @tensor_array_read_{n}(%v, %k)), %k + 1, %end, %at, %v)
  }}
}}
def @tensor_array_scatter_{n}(%ta: List[{t}], %at: {indices}, %v: List[{t}]) -> List[{t}] {{
  @tensor_array_scatter_helper_{n}(%ta, 0, take(shape_of(%at, dtype="int32"), 0), %at, %v)
}}
"""


def split(n: str, value: str, lengths: str, to: str, part: str) -> str:
    """Return the function that writes the parts of a tensor of the type `value`, of these lengths, into an array of
    elements of the type `part`, which has names that end in `to`."""
    return f"""
def @tensor_array_split_helper_{n}(
    %ta: List[{part}], %v: {value}, %from: int32, %k: int32, %end: int32, %lengths: {lengths}) -> List[{part}] {{
  if (%k == %end) {{ %ta }} else {{
    let %to = %from + take(%lengths, %k);
    @tensor_array_split_helper_{n}(
      @tensor_array_write_{to}(%ta, %k, @tensor_take_{n}(%v, %from, %to)), %v, %to, %k + 1, %end, %lengths)
  }}
}}
def @tensor_array_split_{n}(%ta: List[{part}], %v: {value}, %lengths: {lengths}) -> List[{part}] {{
  @tensor_array_split_helper_{n}(%ta, %v, 0, 0, take(shape_of(%lengths, dtype="int32"), 0), %lengths)
}}
"""


def gather(n: str, t: str, result: str, indices: str) -> str:
    """Return the function that stacks the elements at indices of the type `indices`."""
    return f"""
def @tensor_array_gather_helper_{n}(%ta: List[{t}], %found: List[{t}], %k: int32, %at: {indices}) -> List[{t}] {{
  if (%k == 0) {{ %found }} else {{
    @tensor_array_gather_helper_{n}(
      %ta, Cons(@tensor_array_read_{n}(%ta, take(%at, %k - 1)), %found), %k - 1, %at)
  }}
}}
def @tensor_array_gather_{n}(%ta: List[{t}], %at: {indices}) -> {result} {{
  @tensor_array_stack_{n}(@tensor_array_gather_helper_{n}(%ta, Nil, take(shape_of(%at, dtype="int32"), 0), %at))
}}
"""


def of_any_rank(dtype: str) -> str:
    """Return the functions over arrays of tensors of any rank."""
    t, n = type_name(dtype, None), dtype
    ranks = range(1, MAX_RANK + 1)

    def cases(form: str, first: int = 1, last: int = MAX_RANK) -> str:
        return "\n".join(form.replace("NEXT", f"{r + 1}_{n}").replace("RANK", f"{r}_{n}")
                         for r in range(first, last + 1))

    taken = 'tensorRANK(%t) => tensorRANK(take(%t, dyn.arange(%lower, %upper, 1, dtype="int32"), axis=0)),'
    joined = "tensorRANK(%a) => match? (%y) { tensorRANK(%b) => tensorRANK(concatenate((%a, %b))) },"
    unstack = "".join(_unstack(f"tensor{r}_{n}", t, f"tensor{r - 1}_{n}", _tensor(dtype, ["?"] * r)) for r in ranks)
    vector = "Tensor[(?,), int32]"
    return VERSION + _arrays(n, t) + scatter(n, t, vector) + split(n, t, vector, n, t) + gather(n, t, t, vector) + f"""
def @tensor_take_{n}(%x: {t}, %lower: int32, %upper: int32) -> {t} {{ match? (%x) {{ {cases(taken)} }} }}
def @tensor_expand_dims_{n}(%x: {t}) -> {t} {{
  match? (%x) {{ {cases("tensorRANK(%t) => tensorNEXT(expand_dims(%t, axis=0)),", 0, MAX_RANK - 1)} }}
}}
def @tensor_concatenate_{n}(%x: {t}, %y: {t}) -> {t} {{ match? (%x) {{ {cases(joined)} }} }}
def @tensor_array_concat_{n}(%ta: List[{t}]) -> {t} {{ @foldr1(@tensor_concatenate_{n}, %ta) }}
def @tensor_array_stack_{n}(%ta: List[{t}]) -> {t} {{
  @foldr1(@tensor_concatenate_{n}, @map(@tensor_expand_dims_{n}, %ta))
}}
""" + unstack


def _unstack(of: str, t: str, constructor: str, tensor: str) -> str:
    """Return the function that makes a list of the slices of a tensor; `of` ends its name."""
    return f"""
def @tensor_array_unstack_helper_{of}(%k: int32, %end: int32, %x: {tensor}) -> List[{t}] {{
  if (%k == %end) {{ Nil }} else {{
    Cons({constructor}(take(%x, %k, axis=0)), @tensor_array_unstack_helper_{of}(%k + 1, %end, %x))
  }}
}}
def @tensor_array_unstack_{of}(%x: {tensor}) -> List[{t}] {{
  @tensor_array_unstack_helper_{of}(0, take(shape_of(%x, dtype="int32"), 0), %x)
}}
"""


def results_of(shape: Sequence[Any]) -> list[list[Any]]:
    """Return the shapes of slices, parts, stacks and expansions of tensors of a shape: arrays of them are needed."""
    stacks: list[list[Any]] = [["?", *shape], [1, *shape]]
    return [list(shape[1:]), ["?", *shape[1:]], *stacks] if shape else stacks


def of_shape(dtype: str, shape: Sequence[Any]) -> str:
    """Return the functions over arrays of tensors of one shape; the data types of `results_of(shape)` are defined."""
    t, n = type_name(dtype, shape), suffix(dtype, shape)
    stacked, stack = type_name(dtype, ["?", *shape]), suffix(dtype, ["?", *shape])
    one, ones = type_name(dtype, [1, *shape]), suffix(dtype, [1, *shape])
    vector = "Tensor[(?,), int32]"
    text = VERSION + _arrays(n, t) + scatter(n, t, vector) + gather(n, t, stacked, vector) + f"""
def @tensor_get_data_{n}(%x: {t}) -> {_tensor(dtype, shape)} {{
  match? (%x) {{ tensor_constructor_{n}(%t) => %t }}
}}
def @tensor_expand_dims_{n}(%x: {t}) -> {one} {{
  tensor_constructor_{ones}(expand_dims(@tensor_get_data_{n}(%x), axis=0))
}}
""" + _joined("stack", n, t, stack, stacked, f"expand_dims(@tensor_get_data_{n}(%x), axis=0)")
    return text + (_along_first_axis(dtype, shape) if shape else "")


def _joined(what: str, n: str, t: str, result: str, result_type: str, part: str) -> str:
    """Return the function that concatenates the expression `part` of each element `%x`."""
    return f"""
def @tensor_array_{what}_step_{n}(%x: {t}, %rest: {result_type}) -> {result_type} {{
  match (%rest) {{
    tensor_nil_{result} => tensor_constructor_{result}({part}),
    tensor_constructor_{result}(%t) => tensor_constructor_{result}(concatenate(({part}, %t))),
  }}
}}
def @tensor_array_{what}_{n}(%ta: List[{t}]) -> {result_type} {{
  @foldr(@tensor_array_{what}_step_{n}, tensor_nil_{result}, %ta)
}}
"""


def _along_first_axis(dtype: str, shape: Sequence[Any]) -> str:
    """Return the functions that divide or concatenate tensors of one shape along the first axis."""
    t, n = type_name(dtype, shape), suffix(dtype, shape)
    part_type, part = type_name(dtype, ["?", *shape[1:]]), suffix(dtype, ["?", *shape[1:]])
    slice_type, slices = type_name(dtype, shape[1:]), suffix(dtype, shape[1:])
    writes = "" if part == n else f"""
def @tensor_array_write_{part}(%ta: List[{part_type}], %n: int32, %v: {part_type}) -> List[{part_type}] {{
  @update(%ta, %n, %v)
}}
"""
    vector = "Tensor[(?,), int32]"
    return writes + f"""
def @tensor_take_{n}(%x: {t}, %lower: int32, %upper: int32) -> {part_type} {{
  tensor_constructor_{part}(take(@tensor_get_data_{n}(%x), dyn.arange(%lower, %upper, 1, dtype="int32"), axis=0))
}}
def @tensor_concatenate_{n}(%x: {t}, %y: {t}) -> {part_type} {{
  tensor_constructor_{part}(concatenate((@tensor_get_data_{n}(%x), @tensor_get_data_{n}(%y))))
}}
""" + _joined("concat", n, t, part, part_type, f"@tensor_get_data_{n}(%x)") + split(
        n, t, vector, part, part_type) + _unstack(n, slice_type, f"tensor_constructor_{slices}", _tensor(dtype, shape))


def vector_of(shape: Sequence[Any] | None) -> str:
    """Return the type of a vector of int32 of that shape, or of any length."""
    return repr(TensorType(tuple(shape), DataType("int32"))) if shape else "Tensor[(?,), int32]"
