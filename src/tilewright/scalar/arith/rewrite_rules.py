"""Rules of `rewrite_simplify`, which keeps the form of an expression where no rule applies.

A rule is `left -> right`, or `left -> right
    if condition, …`. Single letters match any expression, `c1` to `c3` match
integer constants, and a name that occurs twice matches equal expressions. `fdiv`, `fmod`, `tdiv` and `tmod` are
divisions that round down and towards zero. A condition is built from the matched parts, and must be proved.
"""

from __future__ import annotations

from typing import Final

SUMS: Final = """
x + (y - x) -> y
(y - x) + x -> y
(x - y) + (z - x) -> z - y
(x - y) + (y - z) -> x - z
(x + c1) + (c2 - z) -> (x - z) + (c1 + c2)
max(x, y) + min(x, y) -> x + y
max(x, y) + min(y, x) -> x + y
min(x, y) + max(x, y) -> x + y
min(x, y) + max(y, x) -> x + y
fmod(x, 2) + fmod(x + c1, 2) -> 1 if fmod(c1, 2) == 1
fmod(x + c1, 2) + fmod(x, 2) -> 1 if fmod(c1, 2) == 1
fdiv(x, 2) + fmod(x, 2) -> fdiv(x + 1, 2)
fmod(x, 2) + fdiv(x, 2) -> fdiv(x + 1, 2)
min(c1 - z, c2) + z -> min(z + c2, c1)
max(c1 - z, c2) + z -> max(z + c2, c1)
min(x, y - z) + z -> min(x + z, y)
min(x - z, y) + z -> min(x, y + z)
max(x, y - z) + z -> max(x + z, y)
max(x - z, y) + z -> max(x, y + z)
z + min(x, y - z) -> min(x + z, y)
z + min(x - z, y) -> min(x, y + z)
z + max(x, y - z) -> max(x + z, y)
z + max(x - z, y) -> max(x, y + z)
min(x, y + c1) + c2 -> min(x + c2, y) if c1 + c2 == 0
min(x + c1, y) + c2 -> min(x, y + c2) if c1 + c2 == 0
max(x, y + c1) + c2 -> max(x + c2, y) if c1 + c2 == 0
max(x + c1, y) + c2 -> max(x, y + c2) if c1 + c2 == 0
tdiv(x, c1) * c1 + tmod(x, c1) -> x
fdiv(x, c1) * c1 + fmod(x, c1) -> x
tmod(x, c1) + tdiv(x, c1) * c1 -> x
fmod(x, c1) + fdiv(x, c1) * c1 -> x
fdiv(fmod(x, c1) + c2, c1) + fdiv(x, c1) -> fdiv(x + c2, c1)
x + x -> x * 2
x * y + x * z -> x * (y + z)
y * x + x * z -> x * (y + z)
x * y + z * x -> x * (y + z)
y * x + z * x -> x * (y + z)
y * x + x -> x * (y + 1)
x * y + x -> x * (y + 1)
x + y * x -> x * (1 + y)
x + x * y -> x * (1 + y)
(c1 - y) + c2 -> (c1 + c2) - y
(c1 - y) + x -> (x - y) + c1
x + (c1 - y) -> (x - y) + c1
(x + c1) + y -> (x + y) + c1
x + (y + c1) -> (x + y) + c1
select(x, a, b) + select(x, c, d) -> select(x, a + c, b + d)

(x + y) - y -> x
(x + y) - x -> y
x - (y + x) -> 0 - y
x - (x + y) -> 0 - y
(x - y) - x -> 0 - y
(x + y) - (x + z) -> y - z
(y + x) - (x + z) -> y - z
(x + y) - (z + x) -> y - z
(y + x) - (z + x) -> y - z
min(x, y) - min(y, x) -> 0
max(x, y) - max(y, x) -> 0
min(x, y) - min(z, w) -> x - z if x - z == y - w
min(x, y) - min(z, w) -> x - w if x - w == y - z
max(x, y) - max(z, w) -> x - z if x - z == y - w
max(x, y) - max(z, w) -> x - w if x - w == y - z
min(x, y) - x -> min(0, y - x)
min(x, y) - y -> min(x - y, 0)
max(x, y) - x -> max(0, y - x)
max(x, y) - y -> max(x - y, 0)
x - min(x, y) -> max(0, x - y)
y - min(x, y) -> max(y - x, 0)
x - max(x, y) -> min(0, x - y)
y - max(x, y) -> min(y - x, 0)
min(x + y, z) - x -> min(y, z - x)
min(y + x, z) - x -> min(y, z - x)
min(z, x + y) - x -> min(z - x, y)
min(z, y + x) - x -> min(z - x, y)
max(x + y, z) - x -> max(y, z - x)
max(y + x, z) - x -> max(y, z - x)
max(z, x + y) - x -> max(z - x, y)
max(z, y + x) - x -> max(z - x, y)
x - min(x + y, z) -> max(0 - y, x - z)
x - min(y + x, z) -> max(0 - y, x - z)
x - min(z, x + y) -> max(x - z, 0 - y)
x - min(z, y + x) -> max(x - z, 0 - y)
x - max(x + y, z) -> min(0 - y, x - z)
x - max(y + x, z) -> min(0 - y, x - z)
x - max(z, x + y) -> min(x - z, 0 - y)
x - max(z, y + x) -> min(x - z, 0 - y)
fdiv(x + 1, 2) - fmod(x, 2) -> fdiv(x, 2)
fdiv(x, 2) - fdiv(x + c1, 2) -> fmod(x, 2) * -1 - fdiv(c1, 2) if fmod(c1, 2) == 1
fdiv(x + c1, 2) - fdiv(x, 2) -> fmod(x, 2) + fdiv(c1, 2) if fmod(c1, 2) == 1
fdiv(x + c1, 2) - fdiv(x + c2, 2) -> fmod(x + c2, 2) + fdiv(c1 - c2, 2) if fmod(c1 - c2, 2) == 1
tdiv(x + c1, c3) - tdiv(x + c2, c3) -> tdiv(tmod(x + c2, c3) + (c1 - c2), c3) if x + c2 >= 0, c1 >= c2, c3 > 0
tdiv(x + c1, c2) - tdiv(x, c2) -> tdiv(tmod(x, c2) + c1, c2) if x >= 0, c1 >= 0, c2 > 0
fdiv(x + c1, c3) - fdiv(x + c2, c3) -> fdiv(fmod(x + c2, c3) + (c1 - c2), c3) if c3 > 0
fdiv(x + c1, c2) - fdiv(x, c2) -> fdiv(fmod(x, c2) + c1, c2) if c2 > 0
x - tdiv(x, c1) * c1 -> tmod(x, c1)
x - fdiv(x, c1) * c1 -> fmod(x, c1)
tdiv(x, c1) * c1 - x -> 0 - tmod(x, c1)
fdiv(x, c1) * c1 - x -> 0 - fmod(x, c1)
x - tdiv(x + y, c1) * c1 -> tmod(x + y, c1) - y
x - fdiv(x + y, c1) * c1 -> fmod(x + y, c1) - y
tdiv(x + y, c1) * c1 - x -> y - tmod(x + y, c1)
fdiv(x + y, c1) * c1 - x -> y - fmod(x + y, c1)
x - tdiv(x - y, c1) * c1 -> tmod(x - y, c1) + y
x - fdiv(x - y, c1) * c1 -> fmod(x - y, c1) + y
tdiv(x - y, c1) * c1 - x -> (0 - tmod(x - y, c1)) - y
fdiv(x - y, c1) * c1 - x -> (0 - fmod(x - y, c1)) - y
x * c1 - tdiv(x, c2) * c3 -> tmod(x, c2) * c1 if c3 == c1 * c2
x * c1 - fdiv(x, c2) * c3 -> fmod(x, c2) * c1 if c3 == c1 * c2
tdiv(x, c2) * c3 - x * c1 -> tmod(x, c2) * (0 - c1) if c3 == c1 * c2
fdiv(x, c2) * c3 - x * c1 -> fmod(x, c2) * (0 - c1) if c3 == c1 * c2
x * c1 - tdiv(x + y, c2) * c3 -> (tmod(x + y, c2) - y) * c1 if c3 == c1 * c2
x * c1 - fdiv(x + y, c2) * c3 -> (fmod(x + y, c2) - y) * c1 if c3 == c1 * c2
x * c1 - tdiv(x - y, c2) * c3 -> (tmod(x - y, c2) + y) * c1 if c3 == c1 * c2
x * c1 - fdiv(x - y, c2) * c3 -> (fmod(x - y, c2) + y) * c1 if c3 == c1 * c2
tdiv(x + y, c2) * c3 - x * c1 -> (y - tmod(x + y, c2)) * c1 if c3 == c1 * c2
fdiv(x + y, c2) * c3 - x * c1 -> (y - fmod(x + y, c2)) * c1 if c3 == c1 * c2
tdiv(x - y, c2) * c3 - x * c1 -> ((0 - tmod(x - y, c2)) - y) * c1 if c3 == c1 * c2
fdiv(x - y, c2) * c3 - x * c1 -> ((0 - fmod(x - y, c2)) - y) * c1 if c3 == c1 * c2
x * y - x -> x * (y - 1)
y * x - x -> x * (y - 1)
x - x * y -> x * (1 - y)
x - y * x -> x * (1 - y)
x * y - x * z -> x * (y - z)
y * x - x * z -> x * (y - z)
x * y - z * x -> x * (y - z)
y * x - z * x -> x * (y - z)
0 - x * c1 -> x * (0 - c1)
x - (y - z) -> (x + z) - y
(x + c1) - y -> (x - y) + c1
c1 - (x + c2) -> (c1 - c2) - x
x - (y + c1) -> (x - y) + (0 - c1)
select(x, a, b) - select(x, c, d) -> select(x, a - c, b - d)
select(x, y, z) - z -> select(x, y - z, 0)
select(x, y, z) - y -> select(x, 0, z - y)

min(x, y) * max(x, y) -> x * y
max(x, y) * min(x, y) -> x * y
(x + c1) * c2 -> x * c2 + c1 * c2
(x - y) * c1 -> (y - x) * (0 - c1) if c1 < 0
x * (y * c1) -> (x * y) * c1
"""

QUOTIENTS: Final = """
tdiv(x, x) -> 1
tdiv(tdiv(x, c1), c2) -> tdiv(x, c1 * c2) if c1 > 0, c2 > 0
tdiv(tdiv(x, c1) + c2, c3) -> tdiv(x + c1 * c2, c1 * c3) if c1 > 0, c2 >= 0, c3 > 0, x >= 0
tdiv(x * c1, c2) -> x * tdiv(c1, c2) if c1 % c2 == 0
tdiv(x * c1, c2) -> tdiv(x, tdiv(c2, c1)) if c1 > 0, c2 > 0, c2 % c1 == 0
tdiv(min(x * c1, y), c2) -> min(x * tdiv(c1, c2), tdiv(y, c2)) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv(max(x * c1, y), c2) -> max(x * tdiv(c1, c2), tdiv(y, c2)) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv(min(y, x * c1), c2) -> min(tdiv(y, c2), x * tdiv(c1, c2)) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv(max(y, x * c1), c2) -> max(tdiv(y, c2), x * tdiv(c1, c2)) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv((x * c1 + y) + z, c2) -> x * tdiv(c1, c2) + tdiv(y + z, c2)
    if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y + z >= 0
tdiv((y + x * c1) + z, c2) -> x * tdiv(c1, c2) + tdiv(y + z, c2)
    if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y + z >= 0
tdiv(x * c1 + y, c2) -> x * tdiv(c1, c2) + tdiv(y, c2) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv(y + x * c1, c2) -> tdiv(y, c2) + x * tdiv(c1, c2) if c1 % c2 == 0, c2 > 0, x * c1 >= 0, y >= 0
tdiv(x + c1, c2) -> tdiv(x, c2) + tdiv(c1, c2) if c1 % c2 == 0, c2 > 0, x >= 0, c1 >= 0
tdiv(x + y, x) -> tdiv(y, x) + 1 if x >= 0, y >= 0
tdiv(y + x, x) -> tdiv(y, x) + 1 if x >= 0, y >= 0
tdiv((x + y) + z, x) -> tdiv(y + z, x) + 1 if x >= 0, y + z >= 0
tdiv((y + x) + z, x) -> tdiv(y + z, x) + 1 if x >= 0, y + z >= 0
tdiv(y + (x + z), x) -> tdiv(y + z, x) + 1 if x >= 0, y + z >= 0
tdiv(y + (z + x), x) -> tdiv(y + z, x) + 1 if x >= 0, y + z >= 0
tdiv(x * y, y) -> x if x >= 0, y >= 0
tdiv(y * x, y) -> x if x >= 0, y >= 0
tdiv(x * z + y, z) -> x + tdiv(y, z) if x >= 0, y >= 0, z >= 0
tdiv(z * x + y, z) -> x + tdiv(y, z) if x >= 0, y >= 0, z >= 0
tdiv(y + x * z, z) -> tdiv(y, z) + x if x >= 0, y >= 0, z >= 0
tdiv(y + z * x, z) -> tdiv(y, z) + x if x >= 0, y >= 0, z >= 0

fdiv(x, x) -> 1
fdiv(fdiv(x, c1), c2) -> fdiv(x, c1 * c2) if c1 > 0, c2 > 0
fdiv(fdiv(x, c1) + c2, c3) -> fdiv(x + c1 * c2, c1 * c3) if c1 > 0, c3 > 0
fdiv(x - fmod(x, c1), c1) -> fdiv(x, c1)
fdiv(fmod(x, 2) + 1, 2) -> fmod(x, 2)
fdiv(x * c1, c2) -> x * fdiv(c1, c2) if c1 % c2 == 0
fdiv(x * c1, c2) -> fdiv(x, fdiv(c2, c1)) if c1 > 0, c2 > 0, c2 % c1 == 0
fdiv(x * c1 + c2, c3) -> fdiv(x + fdiv(c2, c1), fdiv(c3, c1))
    if c1 > 0, c3 > c1, c3 % c1 == 0, fdiv(c2, c1) % fdiv(c3, c1) == 0
fdiv(min(x * c1, y), c2) -> min(x * fdiv(c1, c2), fdiv(y, c2)) if c1 % c2 == 0, c2 > 0
fdiv(max(x * c1, y), c2) -> max(x * fdiv(c1, c2), fdiv(y, c2)) if c1 % c2 == 0, c2 > 0
fdiv(min(y, x * c1), c2) -> min(fdiv(y, c2), x * fdiv(c1, c2)) if c1 % c2 == 0, c2 > 0
fdiv(max(y, x * c1), c2) -> max(fdiv(y, c2), x * fdiv(c1, c2)) if c1 % c2 == 0, c2 > 0
fdiv((x * c1 + y) + z, c2) -> x * fdiv(c1, c2) + fdiv(y + z, c2) if c1 % c2 == 0, c2 > 0
fdiv((y + x * c1) + z, c2) -> x * fdiv(c1, c2) + fdiv(y + z, c2) if c1 % c2 == 0, c2 > 0
fdiv((x * c1 + y) + z, c2) -> fdiv(x, fdiv(c2, c1)) if c1 > 0, c2 > 0, c2 % c1 == 0, y + z >= 0, y + z < c1
fdiv(x * c1 + y, c2) -> x * fdiv(c1, c2) + fdiv(y, c2) if c1 % c2 == 0, c2 > 0
fdiv(y + x * c1, c2) -> x * fdiv(c1, c2) + fdiv(y, c2) if c1 % c2 == 0, c2 > 0
fdiv(x * c1 + y, c2) -> fdiv(x, fdiv(c2, c1)) if c1 > 0, c2 > 0, c2 % c1 == 0, y >= 0, y < c1
fdiv(x * c1 + y, c2) -> x * fdiv(c1, c2) if c2 > 0, x * fmod(c1, c2) + y >= 0, x * fmod(c1, c2) + y < c2
fdiv(x + c1, c2) -> fdiv(x, c2) + fdiv(c1, c2) if c1 % c2 == 0, c2 > 0
fdiv(x + y, x) -> fdiv(y, x) + 1 if x >= 0
fdiv(y + x, x) -> fdiv(y, x) + 1 if x >= 0
fdiv((x + y) + z, x) -> fdiv(y + z, x) + 1 if x >= 0
fdiv((y + x) + z, x) -> fdiv(y + z, x) + 1 if x >= 0
fdiv(y + (x + z), x) -> fdiv(y + z, x) + 1 if x >= 0
fdiv(y + (z + x), x) -> fdiv(y + z, x) + 1 if x >= 0
fdiv(x * y, y) -> x if y >= 0
fdiv(y * x, y) -> x if y >= 0
fdiv(x * z + y, z) -> x + fdiv(y, z) if z >= 0
fdiv(z * x + y, z) -> x + fdiv(y, z) if z >= 0
fdiv(y + x * z, z) -> fdiv(y, z) + x if z >= 0
fdiv(y + z * x, z) -> fdiv(y, z) + x if z >= 0

tmod(x, c1) -> tmod(x, 0 - c1) if c1 < 0
tmod(x * c1, c2) -> 0 if c1 % c2 == 0
tmod(x * c1 + y, c2) -> tmod(y, c2) if c1 % c2 == 0, x * c1 >= 0, y >= 0
tmod((x * c1 + y) + z, c2) -> tmod(y + z, c2) if c1 % c2 == 0, x * c1 >= 0, y + z >= 0
tmod(x + c1, c2) -> tmod(x, c2) if c1 % c2 == 0, x >= 0, c1 >= 0
tmod(x + y * c1, c2) -> tmod(x, c2) if c1 % c2 == 0, x >= 0, y * c1 >= 0

fmod(x, c1) -> x if c1 > 0, x >= 0, x < c1
fmod(x * c1, c2) -> 0 if c1 % c2 == 0
fmod(x * c1 + y, c2) -> fmod(x, fdiv(c2, c1)) * c1 + y if c1 > 0, c2 > c1, c2 % c1 == 0, y >= 0, y < c1
fmod(x * c1, c2) -> fmod(x * fmod(c1, c2), c2) if c2 > 0, fmod(c1, c2) != c1
fmod(x * c1 + y, c2) -> fmod(x * fmod(c1, c2) + y, c2) if c2 > 0, fmod(c1, c2) != c1
fmod(x + y * c1, c2) -> fmod(x + y * fmod(c1, c2), c2) if c2 > 0, fmod(c1, c2) != c1
fmod(x + c1, c2) -> fmod(x + fmod(c1, c2), c2) if c2 > 0, fmod(c1, c2) != c1
fmod(x, x) -> 0
fmod(x + y, x) -> fmod(y, x) if x >= 0
fmod(y + x, x) -> fmod(y, x) if x >= 0
fmod(x * y, y) -> 0
fmod(x * y, x) -> 0
fmod(x * z + y, z) -> fmod(y, z) if z >= 0
fmod(z * x + y, z) -> fmod(y, z) if z >= 0
"""

EXTREMES: Final = """
min(x, y) -> x if x <= y
min(x, y) -> y if y <= x
min(fdiv(x + c1, c2) * c2, x) -> x if c2 > 0, c1 + 1 == c2
min(x, fdiv(x + c1, c2) * c2) -> x if c2 > 0, c1 + 1 == c2
min(tdiv(x + c1, c2) * c2, x) -> x if c2 > 0, c1 + 1 == c2
min(x, tdiv(x + c1, c2) * c2) -> x if c2 > 0, c1 + 1 == c2
min(fdiv(x + c1, c2) * c2, max(x, c2)) -> max(x, c2) if c2 > 0, c1 + 1 == c2, x > 0
min(max(x, c2), fdiv(x + c1, c2) * c2) -> max(x, c2) if c2 > 0, c1 + 1 == c2, x > 0
min(tdiv(x + c1, c2) * c2, max(x, c2)) -> max(x, c2) if c2 > 0, c1 + 1 == c2, x > 0
min(max(x, c2), tdiv(x + c1, c2) * c2) -> max(x, c2) if c2 > 0, c1 + 1 == c2, x > 0
min(x, fdiv(x, c1) * c1) -> fdiv(x, c1) * c1 if c1 > 0
min(fdiv(x, c1) * c1, x) -> fdiv(x, c1) * c1 if c1 > 0
max(x, y) -> y if x <= y
max(x, y) -> x if y <= x
max(fdiv(x + c1, c2) * c2, x) -> fdiv(x + c1, c2) * c2 if c2 > 0, c1 + 1 == c2
max(x, fdiv(x + c1, c2) * c2) -> fdiv(x + c1, c2) * c2 if c2 > 0, c1 + 1 == c2
max(tdiv(x + c1, c2) * c2, x) -> tdiv(x + c1, c2) * c2 if c2 > 0, c1 + 1 == c2
max(x, tdiv(x + c1, c2) * c2) -> tdiv(x + c1, c2) * c2 if c2 > 0, c1 + 1 == c2
max(fdiv(x, c1) * c1, x) -> x if c1 > 0
max(x, fdiv(x, c1) * c1) -> x if c1 > 0
"""

EXTREMES_BOTH_WAYS: Final = """
min(max(x, y), min(x, y)) -> min(x, y)
min(max(x, y), min(y, x)) -> min(x, y)
min(max(x, y), x) -> x
min(max(y, x), x) -> x
min(x, max(x, y)) -> x
min(x, max(y, x)) -> x
min(x, min(x, y)) -> min(x, y)
min(y, min(x, y)) -> min(x, y)
min(max(x, y), max(x, z)) -> max(min(y, z), x)
min(max(x, y), max(z, x)) -> max(min(y, z), x)
min(max(y, x), max(x, z)) -> max(min(y, z), x)
min(max(y, x), max(z, x)) -> max(min(y, z), x)
min(y + x, z + x) -> min(y, z) + x
min(y + x, x + z) -> min(y, z) + x
min(x + y, z + x) -> min(y, z) + x
min(x + y, x + z) -> min(y, z) + x
min(x - y, x - z) -> x - max(y, z)
min(y - x, z - x) -> min(y, z) - x
min(min(x, c1), c2) -> min(x, min(c1, c2))
min(c1 - x, c2) -> c1 - max(x, c1 - c2)
min(x * c1, c2) -> min(x, fdiv(c2, c1)) * c1 if c1 > 0, c2 % c1 == 0
min(x * c1, c2) -> max(x, fdiv(c2, c1)) * c1 if c1 < 0, c2 % c1 == 0
min(tdiv(x, c1), tdiv(y, c1)) -> tdiv(min(x, y), c1) if c1 > 0
min(tdiv(x, c1), tdiv(y, c1)) -> tdiv(max(x, y), c1) if c1 < 0
min(fdiv(x, c1), fdiv(y, c1)) -> fdiv(min(x, y), c1) if c1 > 0
min(fdiv(x, c1), fdiv(y, c1)) -> fdiv(max(x, y), c1) if c1 < 0
min(select(x, a, b), select(x, c, d)) -> select(x, min(a, c), min(b, d))
"""
"""Rules that hold with `min` and `max` exchanged, too."""

COMPARISONS: Final = """
c1 == x -> x == c1
x + c1 == c2 -> x == c2 - c1
c1 - x == c2 -> x == c1 - c2
x * y == 0 -> x == 0 or y == 0
x * c1 == c2 -> x == fdiv(c2, c1) if c2 % c1 == 0

x + c1 < y + c2 -> x <= y if c2 - c1 == 1
x + c1 < y + c2 -> x < y + (c2 - c1) if c2 >= c1
x + c1 < y + c2 -> x + (c1 - c2) < y if c1 > c2
x + c1 < c2 -> x < c2 - c1
c1 < x + c2 -> c1 - c2 < x
c1 - x < c2 -> c1 - c2 < x
c1 - x < y -> c1 < y + x
c1 < c2 - x -> x < c2 - c1
x < y + c1 -> x <= y if c1 == 1
x + c1 < y -> x <= y if c1 == -1
x < y + c1 -> x + (0 - c1) < y if c1 < 0
x + c1 < y -> x < y + (0 - c1) if c1 < 0
x + y < x + z -> y < z
x + y < z + x -> y < z
y + x < x + z -> y < z
y + x < z + x -> y < z
y - x < z - x -> y < z
x - y < x - z -> z < y
x < z + x -> 0 < z
x < x + z -> 0 < z
x < x - z -> z < 0
x * c1 < y * c1 -> x < y if c1 > 0
x * c1 < y * c1 -> y < x if c1 < 0
x * c1 < c2 -> x < fdiv(c2 - 1, c1) + 1 if c1 > 0
c1 < x * c2 -> fdiv(c1, c2) < x if c2 > 0
x * c1 < c2 -> fdiv(c2, c1) < x if c1 < 0
c1 < x * c2 -> x < fdiv(c1 + c2 + 1, c2) if c2 < 0
tdiv(x, c1) < c2 -> x < c1 * c2 if c1 > 0, c2 > 0
tdiv(x, c1) < c2 -> x < c1 * (c2 - 1) + 1 if c1 > 0, c2 <= 0
c1 < tdiv(x, c2) -> (c1 + 1) * c2 - 1 < x if c1 >= 0, c2 > 0
c1 < tdiv(x, c2) -> c1 * c2 < x if c1 < 0, c2 > 0
fdiv(x, c1) < c2 -> x < c1 * c2 if c1 > 0
c1 < fdiv(x, c2) -> (c1 + 1) * c2 - 1 < x if c2 > 0
tdiv(x, c1) * c1 < x -> 0 < tmod(x, c1) if c1 > 0
tdiv(x, c1) * c1 < x + y -> 0 < tmod(x, c1) + y if c1 > 0
tdiv(x, c1) * c1 < x - y -> y < tmod(x, c1) if c1 > 0
tdiv(x + c2, c1) * c1 < x -> c2 < tmod(x + c2, c1) if c1 > 0
tdiv(x + c2, c1) * c1 < x + y -> c2 < tmod(x + c2, c1) + y if c1 > 0
tdiv(x + c2, c1) * c1 < x - y -> y + c2 < tmod(x + c2, c1) if c1 > 0
fdiv(x, c1) * c1 < x -> 0 < fmod(x, c1) if c1 > 0
fdiv(x, c1) * c1 < x + y -> 0 < fmod(x, c1) + y if c1 > 0
fdiv(x, c1) * c1 < x - y -> y < fmod(x, c1) if c1 > 0
fdiv(x + c2, c1) * c1 < x -> c2 < fmod(x + c2, c1) if c1 > 0
fdiv(x + c2, c1) * c1 < x + y -> c2 < fmod(x + c2, c1) + y if c1 > 0
fdiv(x + c2, c1) * c1 < x - y -> y + c2 < fmod(x + c2, c1) if c1 > 0
min(x, c1) < c2 -> x < c2 if c1 >= c2
max(x, c1) < c2 -> x < c2 if c1 < c2
c1 < max(x, c2) -> c1 < x if c2 <= c1
c1 < max(c2, x) -> c1 < x if c2 <= c1
c1 < min(x, c2) -> c1 < x if c1 < c2
x + c1 < max(c2, x) -> x + c1 < c2 if c1 >= 0
x + c1 < max(x, c2) -> x + c1 < c2 if c1 >= 0

x + c1 <= y + c2 -> x < y if c1 - c2 == 1
x + c1 <= y + c2 -> x <= y + (c2 - c1) if c2 >= c1
x + c1 <= y + c2 -> x + (c1 - c2) <= y if c1 > c2
x + c1 <= c2 -> x <= c2 - c1
c1 <= x + c2 -> c1 - c2 <= x
c1 - x <= c2 -> c1 - c2 <= x
c1 - x <= y -> c1 <= y + x
c1 <= c2 - x -> x <= c2 - c1
x + c1 <= y -> x < y if c1 == 1
x <= y + c1 -> x < y if c1 == -1
x <= y + c1 -> x + (0 - c1) <= y if c1 < 0
x + c1 <= y -> x <= y + (0 - c1) if c1 < 0
x + y <= x + z -> y <= z
x + y <= z + x -> y <= z
y + x <= x + z -> y <= z
y + x <= z + x -> y <= z
y - x <= z - x -> y <= z
x - y <= x - z -> z <= y
x <= z + x -> 0 <= z
x <= x + z -> 0 <= z
x * c1 <= y * c1 -> x <= y if c1 > 0
x * c1 <= y * c1 -> y <= x if c1 < 0
x * c1 <= c2 -> x <= fdiv(c2, c1) if c1 > 0
x * c1 <= c2 -> fdiv(c2 + c1 + 1, c1) <= x if c1 < 0
c1 <= x * c2 -> fdiv(c1 + c2 - 1, c2) <= x if c2 > 0
c1 <= x * c2 -> x <= fdiv(c1, c2) if c2 < 0
tdiv(x, c1) <= c2 -> x <= c1 * (c2 + 1) - 1 if c1 > 0, c2 >= 0
tdiv(x, c1) <= c2 -> x <= c1 * c2 if c1 > 0, c2 < 0
c1 <= tdiv(x, c2) -> c1 * c2 <= x if c1 > 0, c2 > 0
c1 <= tdiv(x, c2) -> (c1 - 1) * c2 + 1 <= x if c1 <= 0, c2 > 0
fdiv(x, c1) <= c2 -> x <= c1 * (c2 + 1) - 1 if c1 > 0
c1 <= fdiv(x, c2) -> c1 * c2 <= x if c2 > 0
x <= tdiv(x, c1) * c1 -> tmod(x, c1) <= 0 if c1 > 0
x <= tdiv(x + c2, c1) * c1 -> tmod(x + c2, c1) <= c2 if c1 > 0
x + y <= tdiv(x + c2, c1) * c1 -> tmod(x + c2, c1) + y <= c2 if c1 > 0
x - y <= tdiv(x + c2, c1) * c1 -> tmod(x + c2, c1) <= y + c2 if c1 > 0
x <= fdiv(x, c1) * c1 -> fmod(x, c1) == 0 if c1 > 0
x <= fdiv(x + c2, c1) * c1 -> fmod(x + c2, c1) <= c2 if c1 > 0
x + y <= fdiv(x + c2, c1) * c1 -> fmod(x + c2, c1) + y <= c2 if c1 > 0
x - y <= fdiv(x + c2, c1) * c1 -> fmod(x + c2, c1) <= y + c2 if c1 > 0
min(x, c1) <= c2 -> x <= c2 if c1 > c2
max(x, c1) <= c2 -> x <= c2 if c1 <= c2
c1 <= max(x, c2) -> c1 <= x if c2 < c1
c1 <= min(x, c2) -> c1 <= x if c1 <= c2
"""

LOGIC: Final = """
x == y and x != y -> false
x != y and x == y -> false
x <= y and y < x -> false
y < x and x <= y -> false
x < y and y < x -> false
x or (y or z) -> (x or y) or z
x and (y and z) -> (x and y) and z
x == y or x != y -> true
x != y or x == y -> true
x <= y or y < x -> true
y < x or x <= y -> true
fdiv(x, c1) == c2 and fmod(x, c1) == c3 -> x == c1 * c2 + c3 if c3 >= 0, c3 < c1
fmod(x, c1) == c3 and fdiv(x, c1) == c2 -> x == c1 * c2 + c3 if c3 >= 0, c3 < c1
0 <= x - y * c1 and x - y * c1 < c1 -> y == fdiv(x, c1) if c1 > 0
x - y * c1 < c1 and 0 <= x - y * c1 -> y == fdiv(x, c1) if c1 > 0
x < c1 and fmod(x, c2) < c3 -> x < fdiv(c1 - 1, c2) * c2 + c3 and fmod(x, c2) < c3
    if fmod(c1 - 1, c2) >= c3, c2 > 0
x <= c1 and fmod(x, c2) < c3 -> x < fdiv(c1, c2) * c2 + c3 and fmod(x, c2) < c3 if fmod(c1, c2) >= c3, c2 > 0
fdiv(x, c1) == c2 and fmod(x, c1) < c3 -> c1 * c2 <= x and x < c1 * c2 + c3 if c3 <= c1, c1 > 0
fdiv(x, c1) == c2 and fmod(x, c1) <= c3 -> c1 * c2 <= x and x <= c1 * c2 + c3 if c3 < c1, c1 > 0
fdiv(x, c1) == c2 and c3 < fmod(x, c1) -> c1 * c2 + c3 < x and x < c1 * (c2 + 1)
    if c3 >= -1, c1 > 0
fdiv(x, c1) == c2 and c3 <= fmod(x, c1) -> c1 * c2 + c3 <= x and x < c1 * (c2 + 1)
    if c3 >= 0, c1 > 0
select(x, select(y, a, b), b) -> select(x and y, a, b)
"""
