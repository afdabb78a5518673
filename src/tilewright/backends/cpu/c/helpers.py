"""Helper functions of generated C, written where they are used: wrapping arithmetic, flooring division, floats of 16
bits.

    need("add_i32")  ->  static inline int32_t add_i32(int32_t a, int32_t b)
                         { return (int32_t)((uint32_t)a + (uint32_t)b); }

Their meaning is that of the loop language: integers wrap around, division by zero is zero, and the maximum of floats
keeps the first operand if a comparison with NaN fails.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import InternalError

_KINDS: Final = {
    **{f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)}, **{f"u{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    "f32": "float", "f64": "double",
}
_FAMILIES: Final = frozenset({
    "add", "sub", "mul", "max", "min", "shl", "abs", "isinf", "isnan", "sigmoid", "rsqrt", "truncdiv", "truncmod",
    "floordiv",
    "floormod", "power",
})
_SIGNS: Final = {"add": "+", "sub": "-", "mul": "*"}

_FIXED: Final[dict[str, str]] = {
    "UNROLL": """\
/* Loops over a tile, whose sums then stay in registers. Without vectors that would only be more code. */
#if defined(__GNUC__) && !defined(__clang__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define UNROLL_TEXT(text) _Pragma(#text)
#define UNROLL(count) UNROLL_TEXT(GCC unroll count)
#else
#define UNROLL(count)
#endif""",
    "float_of_bits": "static inline float float_of_bits(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return "
    "x; }",
    "bits_of_float": "static inline uint32_t bits_of_float(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); "
    "return bits; }",
    "double_of_bits": "static inline double double_of_bits(uint64_t bits) { double x; memcpy(&x, &bits, sizeof x); "
    "return x; }",
    "bits_of_double": "static inline uint64_t bits_of_double(double x) { uint64_t bits; memcpy(&bits, &x, sizeof "
    "bits); return bits; }",
    "f32_of_bf16": "static inline float f32_of_bf16(uint16_t x) { return float_of_bits((uint32_t)x << 16); }",
    "bf16_of_f32": """\
/* rounds to nearest, ties to even */
static inline uint16_t bf16_of_f32(float x) {
  const uint32_t bits = bits_of_float(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}""",
    "f32_of_f16": """\
static inline float f32_of_f16(uint16_t x) {
  const uint32_t sign = ((uint32_t)x & 0x8000u) << 16, magnitude = (uint32_t)x & 0x7FFFu;
  if (magnitude >= 0x7C00u) return float_of_bits(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13 | (magnitude > 0x7C00u ? 0x400000u : 0u));
  /* 2**112 moves the exponent to its place, and makes subnormal numbers normal */
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f));
}""",  # noqa: E501
    "f16_of_f32": """\
/* rounds to nearest, ties to even */
static inline uint16_t f16_of_f32(float x) {
  const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
  if (magnitude < 0x38800000u) return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3F000000u));
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13);
}""",
    "odd_f32_of_f64": """\
/* a float that rounds to what the double rounds to: its last bit says whether anything was cut off */
static inline float odd_f32_of_f64(double x) {
  const float near = (float)x;
  const double back = (double)near;
  if (back == x || x != x) return near;
  return float_of_bits((bits_of_float(near) - ((back < 0 ? -back : back) > (x < 0 ? -x : x) ? 1u : 0u)) | 1u);
}""",
    "fma_f32": """\
/* one rounding where the processor has the instruction */
static inline float fma_f32(float a, float b, float c) {
#ifdef FP_FAST_FMAF
  return fmaf(a, b, c);
#else
  return a * b + c;
#endif
}""",
    "fma_f64": """\
/* one rounding where the processor has the instruction */
static inline double fma_f64(double a, double b, double c) {
#ifdef FP_FAST_FMA
  return fma(a, b, c);
#else
  return a * b + c;
#endif
}""",
    "multiply_add": """\
/* one rounding, but for one case in 2**29 where the processor has no instruction for it */
static inline float multiply_add(float a, float b, float c) {
#ifdef FP_FAST_FMAF
  return fmaf(a, b, c);
#else
  return (float)((double)a * (double)b + (double)c);
#endif
}""",
    "pair": "static inline uint32_t pair(uint16_t low, uint16_t high) { return (uint32_t)low | (uint32_t)high << 16; }",
    "dot2": """\
/* c plus the products of the two bfloat16 that a and b are pairs of */
static inline float dot2(uint32_t a, uint32_t b, float c) {
  const float low = fma_f32(float_of_bits(a << 16), float_of_bits(b << 16), c);
  return fma_f32(float_of_bits(a & 0xFFFF0000u), float_of_bits(b & 0xFFFF0000u), low);
}""",
    "word": """\
/* four bytes as one number, the first lowest */
static inline uint32_t word(const uint8_t *x) { return (uint32_t)x[0] | (uint32_t)x[1] << 8 | (uint32_t)x[2] << 16 | (uint32_t)x[3] << 24; }""",  # noqa: E501
    "dot4": """\
/* total plus the products of the four unsigned bytes of a with the four signed bytes of b */
static inline int32_t dot4(uint32_t a, int32_t b, int32_t total) {
  const uint32_t w = (uint32_t)b;
  int k;
  for (k = 0; k < 32; k += 8)
    total = add_i32(total, (int32_t)(a >> k & 255u) * ((int32_t)(w >> k & 255u) - (int32_t)((w >> k & 128u) << 1)));
  return total;
}""",
    "high_product": """\
/* bits 32 to 63 of a * b + c */
static inline int32_t high_product(int32_t a, int32_t b, int64_t c) { return (int32_t)(add_i64((int64_t)a * b, c) >> 32); }""",  # noqa: E501
    "doubled_high_product": """\
/* bits 31 to 62 of a * b + c */
static inline int32_t doubled_high_product(int32_t a, int32_t b, int64_t c) { return (int32_t)(add_i64((int64_t)a * b, c) >> 31); }""",  # noqa: E501
}
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "f32_of_bf16": ("float_of_bits",), "bf16_of_f32": ("bits_of_float",),
    "f32_of_f16": ("float_of_bits", "bits_of_float"),
    "f16_of_f32": ("float_of_bits", "bits_of_float"), "odd_f32_of_f64": ("float_of_bits", "bits_of_float"),
    "dot2": ("float_of_bits", "fma_f32"), "dot4": ("add_i32",),
    "high_product": ("add_i64",), "doubled_high_product": ("add_i64",),
}


def _dot4_of_lanes(lanes: int) -> str:
    """Return `dot4` for the sums of a vector: by the instruction for it, or by products of 16-bit halves."""
    wide = {
        8: "defined(__AVX512VNNI__) && defined(__AVX512VL__)", 16: "defined(__AVX512VNNI__) && defined(__AVX512F__)"
    }[lanes]
    bits = 32 * lanes
    i, total = f"_mm{bits}_", f"_mm{bits}_loadu_si{bits}((const void *)total)"
    return f"""\
#if defined(__SSE2__)
#include <immintrin.h>
#endif
/* total[k] plus the products of the four unsigned bytes of a with the four signed bytes of w[k] */
static inline void dot4_x{lanes}(int32_t *total, uint32_t a, const int32_t *w) {{
#if {wide}
  _mm{bits}_storeu_si{bits}((void *)total, {i}dpbusd_epi32({total}, {i}set1_epi32((int32_t)a), {i}loadu_si{bits}((const void *)w)));
#elif defined(__AVX2__)
{_by_halves(lanes, 256)}
#elif defined(__SSE2__)
{_by_halves(lanes, 128)}
#else
  int k, b;
  for (k = 0; k < {lanes}; ++k) {{
    const uint32_t y = (uint32_t)w[k];
    uint32_t sum = (uint32_t)total[k];
    for (b = 0; b < 32; b += 8) sum += (uint32_t)((int32_t)(a >> b & 255u) * ((int32_t)(y >> b & 255u) - (int32_t)((y >> b & 128u) << 1)));
    total[k] = (int32_t)sum;
  }}
#endif
}}"""  # noqa: E501


def _by_halves(lanes: int, bits: int) -> str:
    """Return the products of even and of odd bytes, as 16-bit numbers, in vectors of `bits` bits."""
    kind = f"__m{bits}i"
    i, whole, lines = f"_mm{'' if bits == 128 else bits}_", f"si{bits}", []
    for k in range(0, lanes, bits // 32):
        at = f" + {k}" if k else ""
        lines += [
            "  {",
            f"    const {kind} x = {i}set1_epi32((int32_t)a), y = {i}loadu_{whole}((const void *)(w{at})), sums = "
            f"{i}loadu_{whole}((const void *)(total{at}));",
            f"    const {kind} even = {i}madd_epi16({i}and_{whole}(x, {i}set1_epi32(0x00FF00FF)), "
            f"{i}srai_epi16({i}slli_epi16(y, 8), 8));",
            f"    const {kind} odd = {i}madd_epi16({i}srli_epi16(x, 8), {i}srai_epi16(y, 8));",
            f"    {i}storeu_{whole}((void *)(total{at}), {i}add_epi32(sums, {i}add_epi32(even, odd)));", "  }",
        ]
    return "\n".join(lines)


_FIXED.update({f"dot4_x{lanes}": _dot4_of_lanes(lanes) for lanes in (8, 16)})


def is_helper(name: str) -> bool:
    """Return whether a name is that of a helper function."""
    what, _, end = name.rpartition("_")
    return name in _FIXED or (end in _KINDS and what in _FAMILIES)


def text_of(name: str) -> tuple[tuple[str, ...], str]:
    """Return the functions that a function calls, and its text."""
    if name in _FIXED:
        return _NEEDS.get(name, ()), _FIXED[name]
    what, _, end = name.rpartition("_")
    kind = _KINDS.get(end)
    if kind is None:
        raise InternalError(f"generated C calls '{name}', which has no definition")
    if what in _SIGNS:
        value = f"({kind})((u{kind})a {_SIGNS[what]} (u{kind})b)"
        return (), f"static inline {kind} {name}({kind} a, {kind} b) {{ return {value}; }}"
    if what in ("max", "min"):
        sign = ">" if what == "max" else "<"
        return (), f"static inline {kind} {name}({kind} a, {kind} b) {{ return b {sign} a ? b : a; }}"
    if what == "shl":
        wide = kind if kind.startswith("u") else f"u{kind}"
        return (), f"static inline {kind} {name}({kind} a, {kind} b) {{ return ({kind})({wide})(({wide})a << b); }}"
    if what == "abs":
        return (), f"static inline {kind} {name}({kind} a) {{ return a < 0 ? ({kind})(0u - (u{kind})a) : a; }}"
    f = "f" if kind == "float" else ""
    one = f"1.0{f}"
    match what:
        case "isinf":
            return (), f"static inline bool {name}({kind} x) {{ return fabs{f}(x) == ({kind})INFINITY; }}"
        case "isnan":
            return (), f"static inline bool {name}({kind} x) {{ return x != x; }}"
        case "sigmoid":
            return (), f"static inline {kind} {name}({kind} x) {{ return {one} / ({one} + exp{f}(-x)); }}"
        case "rsqrt":
            return (), f"static inline {kind} {name}({kind} x) {{ return {one} / sqrt{f}(x); }}"
        case "power":
            return (), _power(name, kind)
        case _:
            return _division(what, name, kind)


def _division(what: str, name: str, kind: str) -> tuple[tuple[str, ...], str]:
    signed = not kind.startswith("u")
    overflow = f"if (b == -1) return ({kind})(0u - (u{kind})a); " if signed else ""
    no_rest = "if (b == -1) return 0; " if signed else ""
    body = {
        "truncdiv": f"if (b == 0) return 0; {overflow}return ({kind})(a / b);",
        "truncmod": f"if (b == 0) return 0; {no_rest}return ({kind})(a % b);",
        "floordiv": f"if (b == 0) return 0; {overflow}return ({kind})(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));",
        "floormod": f"if (b == 0) return 0; {no_rest}return ({kind})(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b "
        ": 0));",
    }.get(what)
    if body is None:
        raise InternalError(f"generated C calls '{name}', which has no definition")
    if not signed:
        body = body.replace(" - (a % b != 0 && (a % b < 0) != (b < 0))", "").replace(
            " + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0)", "")
    return (), f"static inline {kind} {name}({kind} a, {kind} b) {{ {body} }}"


def _power(name: str, kind: str) -> str:
    fraction = "if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;" if not kind.startswith("u") else ""
    return f"""\
/* wraps around; a negative power is 1 / a**-b without its fraction, and 0 of zero */
static inline {kind} {name}({kind} a, {kind} b) {{
  uint64_t product = 1, base = (uint64_t)a;
  {fraction}
  for (; b; b = ({kind})(b / 2)) {{
    if (b % 2) product *= base;
    base *= base;
  }}
  return ({kind})product;
}}"""


def prelude(names: set[str]) -> list[str]:
    """Return the texts of the functions, each after those that it calls."""
    done: dict[str, str] = {}

    def write(name: str) -> None:
        if name not in done:
            needs, text = text_of(name)
            for other in needs:
                write(other)
            done[name] = text

    for name in sorted(names):
        write(name)
    return list(done.values())
