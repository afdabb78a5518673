"""Compute bfloat16 in float32, and store it as uint16, for machines without the type.

    C = T.allocate((8,), "bfloat16")                   C = T.allocate((8,), "float32")
    C[i] = A[i] + B[i]                           ->    C[i] = wide(A[i]) + wide(B[i])         BF16ComputeLegalize
    D[i] = C[i]                                        D[i] = narrow(C[i])

    wide(x)    the float32 with the bits of x above 16 zeros: reinterpret(cast(reinterpret(x, uint16), uint32) << 16)
    narrow(x)  x rounded to the nearest bfloat16, with bits added to the lower half before it is cut off

    D: T.Buffer((8,), "bfloat16")                ->    D: T.Buffer((8,), "uint16")            BF16StorageLegalize
    D[i] = narrow(C[i])                                D[i] = the bits of narrow(C[i])

Allocated memory and variables become float32, so a value is rounded when it is stored in a parameter. Rounding keeps
infinities, and NaN with any of the upper 7 bits of the fraction below all ones.
"""

from __future__ import annotations

