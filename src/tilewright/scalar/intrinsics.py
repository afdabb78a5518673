"""Intrinsic functions of scalars and vectors: mathematics, bit operations, dot products, C functions, and effects.

Each intrinsic without effects has a numpy reference; back ends implement it by name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.settings import nearest
from tilewright.base.types import BOOL, DataType
from tilewright.scalar.expr import (
    BITWISE_AND,
    BITWISE_NOT,
    BITWISE_OR,
    BITWISE_XOR,
    FLOOR,
    FMOD,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    Call,
    IntImm,
    Intrinsic,
    Load,
    PairFunction,
    PrimExpr,
    Rounding,
    Value,
    as_expr,
    bitwise,
    cast,
    const,
    if_then_else,
    integer,
    sub,
)


def _dot4(a: Any, b: Any, total: Any) -> Any:
    x, y = np.asarray(a, np.uint32)[..., None].view(np.uint8), np.asarray(b, np.int32)[..., None].view(np.int8)
    return total + (x.astype(np.int32) * y).sum(-1, dtype=np.int32)


def _product_part(a: Any, b: Any, c: Any, shift: int) -> Any:
    """Return 32 bits of the int64 `a * b + c`, starting at bit `shift`; wraps around."""
    return ((np.asarray(a, np.int64) * b + c) >> shift).astype(np.int32)[()]


def power(x: Any, y: Any) -> Any:
    """Return `x` to the power `y`: the numpy reference of `pow`."""
    if not np.issubdtype(np.result_type(x, y), np.integer):
        return np.power(x, y)
    whole = np.power(x, np.maximum(y, np.zeros_like(y)))
    fraction = np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), np.where(np.bitwise_and(y, 1), -1, 1), 0))
    return np.where(np.less(y, 0), fraction.astype(whole.dtype), whole)[()]


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.result_type(x, np.float32)])(x)


def _multiply_add(x: Any, y: Any, z: Any) -> Any:
    return np.asarray(np.asarray(x, np.float64) * y + z, np.float32)[()]


def _bits(x: Any) -> Any:
    """Return the bits of bfloat16 values as uint32."""
    return np.asarray(x, DataType("bfloat16").numpy()).view(np.uint16).astype(np.uint32)[()]


def _halves(x: Any) -> tuple[Any, Any]:
    """Return the low and the high bfloat16 of a pair as float32."""
    bits = np.asarray(x, np.uint32)
    return (bits << np.uint32(16)).view(np.float32)[()], (bits & np.uint32(0xFFFF0000)).view(np.float32)[()]


class FloatFunction(Intrinsic):
    """A function of floating-point numbers, to which integers of Python are converted. Raises `CompileError` for other
    types."""

    __slots__ = ()

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        args = tuple(float(a) if type(a) is int else a for a in args)
        for a in args:
            kind = as_expr(a).dtype
            if not kind.is_float:
                raise CompileError(
                    f"'{self.spelling}' takes floating-point numbers, but was given {kind}; cast it first",
                    code="TW0602")
        return super().__call__(*args, dtype=dtype)


exp: Final[Intrinsic] = FloatFunction("exp", np.exp)
log: Final[Intrinsic] = FloatFunction("log", np.log)
log2: Final[Intrinsic] = FloatFunction("log2", np.log2)
exp2: Final[Intrinsic] = FloatFunction("exp2", np.exp2)
sqrt: Final[Intrinsic] = FloatFunction("sqrt", np.sqrt)
rsqrt: Final[Intrinsic] = FloatFunction("rsqrt", lambda x: 1 / np.sqrt(x))
tanh: Final[Intrinsic] = FloatFunction("tanh", np.tanh)
sigmoid: Final[Intrinsic] = FloatFunction("sigmoid", lambda x: 1 / (1 + np.exp(-x)))
erf: Final[Intrinsic] = FloatFunction("erf", _erf)
sin: Final[Intrinsic] = FloatFunction("sin", np.sin)
cos: Final[Intrinsic] = FloatFunction("cos", np.cos)
tan: Final[Intrinsic] = FloatFunction("tan", np.tan)
asin: Final[Intrinsic] = FloatFunction("asin", np.arcsin)
acos: Final[Intrinsic] = FloatFunction("acos", np.arccos)
atan: Final[Intrinsic] = FloatFunction("atan", np.arctan)
sinh: Final[Intrinsic] = FloatFunction("sinh", np.sinh)
cosh: Final[Intrinsic] = FloatFunction("cosh", np.cosh)
asinh: Final[Intrinsic] = FloatFunction("asinh", np.arcsinh)
acosh: Final[Intrinsic] = FloatFunction("acosh", np.arccosh)
atanh: Final[Intrinsic] = FloatFunction("atanh", np.arctanh)
floor: Final = FLOOR
ceil: Final[Intrinsic] = Rounding("ceil", np.ceil)
trunc: Final[Intrinsic] = Rounding("trunc", np.trunc)
fmod: Final = FMOD
nearbyint: Final[Intrinsic] = Rounding("nearbyint", np.rint)
fabs: Final = Intrinsic("fabs", np.abs)
pow: Final[Intrinsic] = PairFunction("pow", power)
"""`pow(x, y)`: for integers an integer result that wraps around; a negative power is 1 / x^-y truncated, and 0 for x =
0."""
fma: Final = Intrinsic("fma", lambda a, b, c: a * b + c)
multiply_add: Final = Intrinsic("multiply_add", _multiply_add)
"""`x * y + z` of float32, rounded once on every machine. `fma` rounds once only where the machine has an instruction
for it, and is faster elsewhere."""
pair: Final = Intrinsic("pair", lambda low, high: _bits(low) | _bits(high) << np.uint32(16))
"""`pair(low, high)`: two bfloat16 packed into a uint32, in memory order."""
dot2: Final = Intrinsic("dot2", lambda a, b, c: c + _halves(a)[0] * _halves(b)[0] + _halves(a)[1] * _halves(b)[1])
"""`dot2(a, b, c)`: float32 `c` plus the two products of the bfloat16 pairs in uint32 `a` and `b`.

The machine determines the order of additions, and whether products are rounded. Instructions for it (`vdpbf16ps`,
`bfdot`) may flush subnormal numbers to zero.
"""
dot4: Final = Intrinsic("dot4", _dot4)
"""`dot4(a, b, total)`: int32 `total` plus the products of the four unsigned bytes of uint32 `a` with the four signed
bytes of int32 `b`; wraps around."""
high_product: Final = Intrinsic("high_product", lambda a, b, c: _product_part(a, b, c, 32))
doubled_high_product: Final = Intrinsic("doubled_high_product", lambda a, b, c: _product_part(a, b, c, 31))
"""`high_product(a, b, c)` is bits 32 to 63 of `a * b + c` as int32, for int32 `a` and `b` and int64 `c`; the doubled
variant is bits 31 to 62. Both serve fixed-point arithmetic."""
ACCUMULATING: Final = (fma, dot2, dot4)
"""Functions that add products to their last argument."""


class Predicate(Intrinsic):
    """An intrinsic whose result is bool by default."""

    __slots__ = ()

    def __call__(self, *args: Value, dtype: str | DataType | None = None) -> PrimExpr:
        kind = BOOL.with_lanes(max(as_expr(a).dtype.lanes for a in args))
        if not any(as_expr(a).dtype.is_float for a in args):
            return const(0, kind)
        return super().__call__(*args, dtype=dtype or kind)


isnan: Final[Intrinsic] = Predicate("isnan", np.isnan)
isinf: Final[Intrinsic] = Predicate("isinf", np.isinf)
reinterpret: Final = Intrinsic("reinterpret")
bitwise_and: Final = BITWISE_AND
bitwise_or: Final = BITWISE_OR
bitwise_xor: Final = BITWISE_XOR
bitwise_not: Final = BITWISE_NOT
shift_left: Final = SHIFT_LEFT
shift_right: Final = SHIFT_RIGHT
horizontal_sum: Final = Intrinsic("horizontal_sum", np.sum)
horizontal_prod: Final = Intrinsic("horizontal_prod", np.prod)
horizontal_max: Final = Intrinsic("horizontal_max", np.max)
horizontal_min: Final = Intrinsic("horizontal_min", np.min)
"""`horizontal_*(vector)`: reduce all lanes to a scalar; the machine determines the order."""
prefetch: Final = Intrinsic("prefetch", effect=True)
"""`prefetch(load, level=1)`: bring the address of `load` into the cache of that level, 1 to 3."""

address_of: Final = Intrinsic("address_of", effect=True)
"""`address_of(load, access, size, …)`: the address of an element, for an external function that reads (access 1),
writes (2) or updates (3) a box of this size that starts there."""
stride_of: Final = Intrinsic("stride_of", effect=True)
"""`stride_of(load, d)`: the distance in elements between indices of dimension `d`, known once memory is laid out."""
expect: Final = Intrinsic("expect", effect=True)
"""`expect(value, wanted)`: a requirement on strides that is checked when memory is laid out, and then removed."""


class Extern(Intrinsic):
    """A linked C function of numbers and addresses. Calls of `pure` functions are values, those of others statements.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        return "tir.call_extern" if self.effect else "tir.call_pure_extern"


@functools.cache
def extern(name: str, *, pure: bool = False) -> Extern:
    """Return the C function of that symbol."""
    return Extern(name, effect=not pure)


class LLVMIntrinsic(Extern):
    """A function of LLVM, such as `llvm.ctlz`, without or with the types in its name; back ends of LLVM only."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "tir.call_llvm_intrin" if self.effect else "tir.call_llvm_pure_intrin"


@functools.cache
def llvm_intrinsic(name: str, *, pure: bool = False) -> LLVMIntrinsic:
    """Return LLVM's function of that name."""
    return LLVMIntrinsic(name, effect=not pure)


call_address: Final = Extern("call_address", effect=True)
"""`call_address(address, argument, …)`: a call of the C function at an address, an int64."""
ret: Final = Intrinsic("ret", effect=True)
"""`ret(value)`: the end of a function, whose result is the value; a statement."""


class Packed(Intrinsic):
    """A function of the program around, called by the name under which it is registered: `tir.call_packed`.

    `texts` are the positions and values of its strings. `arrays` are the positions of whole buffers among the
    arguments, which are given by their addresses, and their numbers of dimensions.
    """

    __slots__ = ("arrays", "function", "texts")

    def __init__(
        self, function: str, texts: tuple[tuple[int, str], ...] = (), arrays: tuple[tuple[int, int], ...] = ()
    ) -> None:
        super().__init__("call_packed", effect=True)
        self.function, self.texts, self.arrays = function, texts, arrays

    @property
    def name(self) -> str:
        return "tir.tvm_call_packed"


@functools.cache
def packed(
    function: str, texts: tuple[tuple[int, str], ...] = (), arrays: tuple[tuple[int, int], ...] = ()
) -> Packed:
    """Return the registered function of that name, for these strings and arrays among its arguments."""
    return Packed(function, texts, arrays)


class Opaque(Intrinsic):
    """A built-in function of TVM for a device or a stage of its compiler, without a meaning here. Programs with it can
    be read, printed and compared, but not compiled. `texts` are the positions and values of its strings."""

    __slots__ = ("texts",)

    def __init__(self, spelling: str, texts: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(spelling, effect=True)
        self.texts = texts


class Subroutine(Opaque):
    """A function of the same module, called with its parameters in order: `Module.f(A.data, n)`.

    Such calls can be read, printed and changed by passes, but not compiled.
    """

    __slots__ = ()

    @property
    def name_hint(self) -> str:
        """The name of the function in the module."""
        return self.spelling

    @property
    def name(self) -> str:
        return self.spelling


@functools.cache
def subroutine(name: str) -> Subroutine:
    """Return the function of that name in the module."""
    return Subroutine(name)


OPAQUE: Final[Mapping[str, str]] = {
    **dict.fromkeys((
        "tvm_load_matrix_sync", "tvm_store_matrix_sync", "tvm_mma_sync", "tvm_bmma_sync", "tvm_fill_fragment",
        "tvm_thread_allreduce", "tvm_tuple", "tvm_thread_context", "lookup_param", "tvm_throw_last_error",
        "start_profile_intrinsic", "end_profile_intrinsic", "TVMBackendAllocWorkspace", "tvm_stack_alloca",
        "tvm_stack_make_array", "tvm_stack_make_shape"), "handle"),
    **dict.fromkeys((
        "tvm_storage_sync", "tvm_struct_set", "tvm_context_id", "TVMBackendFreeWorkspace",
        "undef", "call_cpacked", "tvm_call_cpacked", "tvm_call_packed_lowered", "tvm_call_cpacked_lowered",
        "tvm_check_return"), "int32"),
    **dict.fromkeys(("ptx_commit_group", "ptx_wait_group"), "void"),
    **dict.fromkeys(("assume", "isnullptr"), "bool"), "tvm_warp_activemask": "uint32", "atomic_add": "",
    **dict.fromkeys((
        "ptx_mma", "ptx_mma_sp", "ptx_ldmatrix", "ptx_cp_async", "mma_store", "mma_fill", "type_annotation",
        "tvm_access_ptr", "tvm_struct_get", "tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down",
        "vectorlow", "vectorhigh", "vectorcombine"), ""),
}
"""Names of the functions of class `Opaque`, with the types of their results; empty where a call gives it."""


def without_meaning(op: Opaque) -> CompileError:
    """Return the error of a program that is compiled with a built-in function of another device, or a call within the
    module."""
    if isinstance(op, Subroutine):
        return CompileError(
            f"the call of '{op.spelling}', another function of the module, has no code; such a program can be read and "
            "changed by passes, but not compiled", code="TW0602")
    return CompileError(
        f"'T.{op.spelling}' has no meaning on this device; such a program can be read and scheduled, but not compiled",
        code="TW0602")


@functools.cache
def opaque(name: str, *texts: tuple[int, str]) -> Opaque:
    """Return the built-in function of that name, which is in `OPAQUE`."""
    return Opaque(name, texts)


_TYPED_FIRST: Final = frozenset((
    "ptx_mma", "ptx_mma_sp", "ptx_ldmatrix", "ptx_cp_async", "mma_store", "mma_fill", "type_annotation", "vectorlow",
    "vectorhigh", "vectorcombine",
))
"""Built-in functions whose first argument is the type of the result."""
TYPED_LAST: Final = "tvm_struct_get"
"""The built-in function whose last argument is the type of the result."""
_TYPED_AS_SECOND: Final = frozenset(("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down"))
"""Built-in functions whose result has the type of their second argument."""


def type_of_opaque(name: str, args: Sequence[PrimExpr]) -> DataType:
    """Return the type of a call of a built-in function of `OPAQUE` that states none."""
    if name in _TYPED_AS_SECOND and len(args) > 1:
        return args[1].dtype
    return DataType(OPAQUE[name] or "handle")


def call_opaque(name: str, *args: Any, dtype: str | DataType | None = None, cond: Value | None = None) -> PrimExpr:
    """Return a call of the built-in function of that name, which is in `OPAQUE`; strings are a part of the function.

    `cond` is TVM's name of the argument of `assume`.
    """
    given = [*args, *([] if cond is None else [cond])]
    if dtype is None and name in _TYPED_FIRST and given:
        dtype = given.pop(0)
    if dtype is None and name == TYPED_LAST and given and isinstance(given[-1], str):
        dtype = given.pop()
    if name == "tvm_access_ptr" and given and isinstance(given[0], str):
        given[0] = call_opaque("type_annotation", given[0])
    texts = [(i, str(a)) for i, a in enumerate(given) if isinstance(a, str)]
    values = [as_expr(a, "int32" if type(a) is int else None) for a in given if not isinstance(a, str)]
    return Call(dtype or type_of_opaque(name, values), opaque(name, *texts), values)


def call_extern(dtype: str | DataType, name: str, *args: Value) -> PrimExpr:
    """Return a call of the C function `name` for its effect, with a result of `dtype`; integers are passed as `int64`.

    The type "", which TVM has for a call without a result, is int32, since such a result is ignored.
    """
    return Call(dtype or "int32", extern(name), [as_expr(a) for a in args])


def call_pure_extern(dtype: str | DataType, name: str, *args: Value) -> PrimExpr:
    """Return a call of the C function `name` without side effects, with a result of `dtype`."""
    return Call(dtype, extern(name, pure=True), [as_expr(a) for a in args])


def call_llvm_intrin(dtype: str | DataType, name: str, *args: Value) -> PrimExpr:
    """Return a call of LLVM's function `name` for its effect; a result type of "" or "void" means none.

    As in TVM, the first of `args` is the number of arguments that determine the types in the name; LLVM derives these
    itself. Raises `CompileError` if it is missing.
    """
    return _llvm_call(dtype, llvm_intrinsic(name), args)


def call_llvm_pure_intrin(dtype: str | DataType, name: str, *args: Value) -> PrimExpr:
    """Return a call of LLVM's function `name` without side effects, with arguments as in `call_llvm_intrin`."""
    return _llvm_call(dtype, llvm_intrinsic(name, pure=True), args)


def _llvm_call(dtype: str | DataType, op: LLVMIntrinsic, args: Sequence[Value]) -> PrimExpr:
    given = [as_expr(a) for a in args]
    known = op.spelling.startswith("llvm.") or op.spelling.isdigit()  # or its number in one version of LLVM
    if not known or not given or type(given[0]) is not IntImm:
        raise CompileError(
            f"a call of LLVM takes the name of a function, such as 'llvm.ctlz', then the number of arguments that "
            f"determine its types, then the arguments; the name is {op.spelling!r}", code="TW0602")
    return Call(dtype or "void", op, given)


PREDICATES: Final = (isnan, isinf)
_CALLS: Final = {
    "call_extern": call_extern, "call_pure_extern": call_pure_extern, "call_llvm_intrin": call_llvm_intrin,
    "call_llvm_pure_intrin": call_llvm_pure_intrin,
}


def intrinsic_named(name: str) -> Intrinsic:
    """Return the intrinsic of a name, such as `tir.exp`, without the strings that are arguments in TVM.

    Raises `CompileError` for an unknown one.
    """
    plain = name.removeprefix("tir.")
    plain = "nearbyint" if plain == "round" else plain
    if plain in OPAQUE:
        return opaque(plain)
    if plain in _OUTSIDE:
        return _OUTSIDE[plain]
    found = globals().get(plain)
    if not isinstance(found, Intrinsic) or plain.isupper():
        known = sorted(n for n, f in globals().items() if isinstance(f, Intrinsic) and not n.isupper())
        raise CompileError(
            f"there is no intrinsic '{name}'{nearest(plain, known) or '; the intrinsics are ' + ', '.join(known)}",
            code="TW0602")
    return found


_OUTSIDE: Final[Mapping[str, Intrinsic]] = {
    "call_extern": extern(""), "call_pure_extern": extern("", pure=True), "call_llvm_intrin": llvm_intrinsic(""),
    "call_llvm_pure_intrin": llvm_intrinsic("", pure=True), "tvm_call_packed": packed(""),
}
"""Functions outside of the program, which have names."""


def _rest_from(load: Load) -> list[PrimExpr]:
    """Return the sizes of the box from an element to the end of its buffer."""
    return [sub(as_expr(d), i) for d, i in zip(load.buffer.shape, load.indices, strict=True)]


def call_named(dtype: str | DataType, name: str, args: Sequence[Any]) -> PrimExpr:
    """Return a call of the intrinsic called `name`, with or without `tir.`. The first argument of `tir.call_extern` is
    the name of a C function; those of `tir.prefetch` are an address, whether it is written, LLVM's locality, and a kind
    of cache. Raises `CompileError` for an unknown intrinsic."""
    plain = name.removeprefix("tir.")
    plain = "nearbyint" if plain == "round" else plain
    if plain in _CALLS and args and isinstance(args[0], str):
        return _CALLS[plain](dtype, *args)
    if plain in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"):
        return cast(dtype, bitwise(globals()[plain], *args))
    if plain in OPAQUE:
        return call_opaque(plain, *args, dtype=dtype)
    if plain == "address_of" and len(args) == 1 and isinstance(args[0], Load):
        return Call(dtype, address_of, (args[0], const(3, "int64"), *_rest_from(args[0])))
    if plain == "prefetch" and len(args) == 4 and isinstance(args[0], Call) and args[0].op is address_of:
        return prefetch(args[0].args[0], 4 - max(1, integer(as_expr(args[2]))), dtype=dtype)
    if plain == "if_then_else" and len(args) == 3:
        return if_then_else(args[0], cast(dtype, args[1]), cast(dtype, args[2]))
    return intrinsic_named(name)(*args, dtype=dtype)
