"""Compiles one program for all sizes of a model, or says why that is not possible.

It imports passes and code generation only when it compiles, so that a program in the cache is loaded without them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.base.errors import CompileError, InputError, OpenSizeWarning, OpNotImplemented
from tilewright.compiler.model_compiler import ModelCompiler
from tilewright.compiler.open_shapes import OpenShapes
from tilewright.compiler.staged import Stages
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.call_inputs import described
from tilewright.runtime.manifest import Symbol


def program_for(wanted: OpenShapes, compiler: ModelCompiler, *, limited: bool) -> tuple[Artifact | None, str, bool]:
    """Return the program for these sizes, or None and the reason; the cache keeps either. The last result is true if
    sizes depend on values of a call, so that stages may be compiled for all sizes.

    `limited` is true if the caller gave the sizes: errors other than `OpenSizeError` are then raised. Without, a model
    that cannot be imported for symbolic sizes may be possible for known ones. Raises `OpNotImplemented`.
    """
    key = wanted.key()
    artifact = compiler.stored(key)
    refused = None if artifact is not None else compiler.refusal(key)
    if artifact is not None or refused is not None:
        return artifact, refused or "", False
    from tilewright.compiler.open_program import OpenSizeError

    try:
        artifact = compiler.compile_open(wanted)
    except OpNotImplemented:
        raise
    except CompileError as error:
        if limited and not isinstance(error, OpenSizeError):
            raise
        waits = isinstance(error, OpenSizeError) and error.waits
        if not waits:
            compiler.store_refusal(key, str(error))
        return None, str(error), waits
    compiler.store(key, artifact)
    return artifact, "", False


def refusal(name: str, why: str) -> str:
    """Return the warning about a model without a program for all sizes."""
    return f"'{name}' is compiled for each combination of its sizes: {why}"


def report_refusal(name: str, why: str, *, required: bool) -> None:
    """Warn the caller of `tilewright.compile` that there is no program for all sizes; raise `OpenSizeError` if it is
    required."""
    if required:
        from tilewright.compiler.open_program import OpenSizeError

        raise OpenSizeError(f"no program serves all sizes of '{name}': {why}")
    warnings.warn(OpenSizeWarning(refusal(name, why)), stacklevel=4)


def size_report(
    dimensions: Mapping[str, Sequence[int | str]], served: str | Sequence[Symbol], *, in_stages: bool
) -> str:
    """Describe symbolic dimensions of inputs, and how programs serve them: one with the symbols `served`, or several
    for this reason, which are stages with symbolic sizes where possible. Empty without such dimensions."""
    if not dimensions:
        return ""
    shapes = described([*dimensions.items()])
    if isinstance(served, str):
        made = "stages are compiled at calls" if in_stages else "a program is compiled for each combination of sizes"
        return f"symbolic dimensions ({shapes}): {made}, because {served}"
    return f"symbolic dimensions ({shapes}): one program serves all sizes, {', '.join(map(str, served))}"


def check_holds_several(tree: Stages, path: Path) -> None:
    """Raise `InputError` for a file that holds one program, if calls made several."""
    if path.suffix == ".tar":
        return
    names = [tree.signature[k][0] for k in tree.root.open]
    calls = [", ".join(f"{n}: {shape}" for n, shape in zip(names, key, strict=True)) for key in tree.root.edges]
    raise InputError(
        f"{path}: the model was compiled for {len(calls)} combinations of shapes ({'; '.join(calls)}), and a "
        f"'{path.suffix}' file holds one program; save it as .tar, or compile it with the sizes in shapes=",
        code="TW0807")
