"""PyTorch modules by three doors (TorchScript, torch.export, torch.compile) against eager PyTorch in the module's types
and in float64."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

import tilewright
from fuzz import compare, rules, torch_draw
from fuzz.onnx_text import array_text
from fuzz.outcomes import AGREES, EXPLAINED, INVALID, REFUSED, WRONG, Array, Draw, Outcome, raised
from tilewright.base.types import DataType
from tilewright.relay.frontend.pytorch import from_pytorch

DOORS: Final = ("script", "export", "compile")
SHAKEN: Final = 4
_TEST: Final = '''"""{about}"""

from __future__ import annotations

import numpy as np

from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, silent
from fuzz.torch_kind import Case, TorchKind, tensors
from tilewright.base.types import DataType

nan, inf = float("nan"), float("inf")
CASE = Case(
    tensors({
ARRAYS_TEXT
    }),
    (
LINES_TEXT
    ),
    DOORS_TEXT,
)
REFERENCES = {
REFERENCES_TEXT
}
OURS = OURS_TEXT
"""What was computed when this file was written; for the reader."""


def test_found() -> None:
    outcome = TorchKind().run(CASE, silent)
    assert outcome.category in (AGREES, EXPLAINED, REFUSED), outcome.detail
'''


@dataclass(frozen=True)
class Case:
    """Tensors by name, inputs x… and buffers w…, and the statements of `forward`; its results are the values that
    nothing reads."""

    arrays: Mapping[str, Any]
    lines: tuple[tuple[str, str], ...]
    doors: tuple[str, ...] = DOORS

    @property
    def inputs(self) -> list[str]:
        return [n for n in self.arrays if n[0] == "x"]

    @property
    def results(self) -> list[str]:
        read = {w for _, e in self.lines for w in re.findall(r"\w+", e)}
        return [n for n, _ in self.lines if n not in read]

    def module(self, convert: Callable[[Any], Any] = lambda t: t, wrap: str = "") -> Any:
        """The module; `convert` changes its buffers, `wrap` is the name of a function around each statement."""
        body = [f"    {n} = {self.told(e, wrap)}" for n, e in self.lines]
        text = "\n".join(
            [f"def forward(self, {', '.join(self.inputs)}):", *body, f"    return ({', '.join(self.results)},)"]
        )
        scope: dict[str, Any] = dict(torch_draw.SCOPE)
        exec(text, scope)
        made = type("Drawn", (torch.nn.Module,), {"forward": scope["forward"]})()
        for name, value in self.arrays.items():
            if name[0] == "w":
                made.register_buffer(name, convert(value))
        return made.eval(), scope

    def told(self, expression: str, wrap: str) -> str:
        """A statement with its buffers as attributes."""
        text = re.sub(
            r"\bw\d+\b", lambda m: f"self.{m.group(0)}" if m.group(0) in self.arrays else m.group(0), expression
        )
        return f"{wrap}({text})" if wrap else text


class TorchKind:
    """Random modules."""

    name = "torch"

    def prepare(self) -> None:
        """Read the database and import what is slow to import before workers are forked."""
        import torch._dynamo
        import torch.export

        torch.set_num_threads(1)
        torch_draw.database()

    def draw(self, draw: Draw) -> Case:
        return Case(*torch_draw.drawn(draw))

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        torch.set_num_threads(1)
        with warnings.catch_warnings(), torch.no_grad(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                want = [plain(t) for t in case.module()[0](*(case.arrays[n] for n in case.inputs))]
            except Exception as error:  # PyTorch raises many kinds
                return Outcome(INVALID, "refused by the references", str(error)[:200])
            outcomes = {door: self._door(case, door, want, phase) for door in case.doors}
        for category in (WRONG, "foreign", EXPLAINED, REFUSED, INVALID):
            for outcome in outcomes.values():
                if outcome.category == category:
                    return outcome
        return Outcome(AGREES)

    def _door(self, case: Case, door: str, want: list[Array], phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        module, _ = case.module()
        args = tuple(case.arrays[n].clone() for n in case.inputs)
        try:
            captured = captured_by(door, module, args)
        except Exception as error:  # what TorchScript or export cannot take is not ours
            return Outcome(INVALID, f"{door} refuses", str(error)[:200])
        phase("ours")
        try:
            ours = run_ours(door, captured, args)
        except Exception as error:  # each kind of exception has its place in the report
            if type(cause(error)).__module__.startswith("torch._dynamo"):  # dynamo's own, before our code is asked
                return Outcome(INVALID, f"{door} refuses", str(error)[:200])
            outcome = raised(cause(error))
            return replace(outcome, label=f"{door}: {outcome.label}")
        phase("reference")
        if not compare.difference(ours, want):
            return Outcome(AGREES)
        return judged(case, door, ours, want)

    def smaller(self, case: Case) -> Iterator[Case]:
        if len(case.doors) > 1:
            yield from (replace(case, doors=(d,)) for d in case.doors)
        values = known(case)
        for name, expression in case.lines if len(case.lines) > 1 else ():
            read = [w for w in re.findall(r"\w+", expression) if w in values]
            yield trimmed(
                replace(
                    case, arrays=as_inputs({w: values[w] for w in read}, case),
                    lines=((name, renamed(expression, read, case)),)
                )
            )
        for k in range(len(case.lines)):
            yield trimmed(replace(case, lines=case.lines[:k] + case.lines[k + 1:]))
        for name, t in case.arrays.items():
            for small in plainer(t):
                yield replace(case, arrays={**case.arrays, name: small})

    def test(self, case: Case, outcome: Outcome) -> str:
        given = "\n".join(f"        {n!r}: {array_text(plain(t))}," for n, t in case.arrays.items())
        lines = "\n".join(f"        ({n!r}, {e!r})," for n, e in case.lines)
        answers = "\n".join(f"    {n!r}: [{', '.join(map(array_text, v))}]," for n, v in outcome.references.items())
        ours = f"[{', '.join(map(array_text, outcome.ours))}]" if outcome.ours else repr(outcome.detail)
        text = _TEST.replace("ARRAYS_TEXT", given).replace("LINES_TEXT", lines).replace("DOORS_TEXT", repr(case.doors))
        return text.replace("REFERENCES_TEXT", answers).replace("OURS_TEXT", ours)


def captured_by(door: str, module: Any, args: tuple[Any, ...]) -> Any:
    """What a door makes of a module before our code sees it."""
    if door == "script":
        return torch.jit.trace(module, args, check_trace=False)
    if door == "export":
        return torch.export.export(module, args)
    torch._dynamo.reset()
    return module


def run_ours(door: str, captured: Any, args: tuple[Any, ...]) -> list[Array]:
    """The outputs of our compiled module."""
    if door == "compile":
        return [plain(t) for t in torch.compile(captured, backend="tilewright", dynamic=False)(*args)]
    arrays = [plain(a) for a in args]
    if door == "script":
        infos = [(f"input{k}", (tuple(a.shape), str(a.dtype).removeprefix("torch."))) for k, a in enumerate(args)]
        captured, _ = from_pytorch(captured, infos, freeze_params=True)
    found = tilewright.compile(captured, threads=1)(*arrays)
    return [np.asarray(f) for f in found] if isinstance(found, (tuple, list)) else [np.asarray(found)]


def cause(error: BaseException) -> BaseException:
    """The exception inside the one of dynamo."""
    inner = getattr(error, "inner_exception", None) or error.__cause__
    return cause(inner) if type(error).__module__.startswith("torch._dynamo") and inner is not None else error


def plain(t: Any) -> Array:
    """A tensor as an array."""
    if not isinstance(t, torch.Tensor):
        return np.asarray(t)
    t = t.detach().cpu().resolve_neg()
    found: Array = t.float().numpy().astype(DataType("bfloat16").numpy()) if t.dtype is torch.bfloat16 else t.numpy()
    return found


def tensors(named: Mapping[str, Array]) -> dict[str, Any]:
    """Tensors of arrays."""
    return {
        n: torch.from_numpy(a.astype(np.float32)).bfloat16() if a.dtype.name == "bfloat16"
        else torch.from_numpy(np.array(a)) for n, a in named.items()
    }


def evaluated(case: Case, wrap: Callable[[Any], Any], convert: Callable[[Any], Any]) -> list[Array]:
    """The results of eager PyTorch, with `wrap` around each statement and `convert` around each tensor."""
    module, scope = case.module(convert, "wrap")
    scope["wrap"] = wrap
    return [plain(t) for t in module(*(convert(case.arrays[n]) for n in case.inputs))]


def wide(t: Any) -> Any:
    return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t


def judged(case: Case, door: str, ours: list[Array], want: list[Array]) -> Outcome:
    """The outcome for an answer that differs from eager PyTorch."""
    said = f"{door}: {compare.difference(ours, want)}"
    rule = rules.applying_torch(case.lines, known(case))
    if rule is not None:
        return Outcome(EXPLAINED, rule.name, said)
    exact: list[Array] = []
    try:
        exact = evaluated(case, wide, wide)
        if compare.as_good(ours, [want], exact):
            return Outcome(EXPLAINED, rules.ACCUMULATION.name, said)
        narrow = any(t.dtype in (torch.float16, torch.bfloat16) for t in (*case.arrays.values(), *known(case).values()))
        amount = 2.0**-8 if narrow else 2.0**-22
        shaken = []
        for k in range(SHAKEN):
            random = torch.Generator().manual_seed(k)

            def shake(t: Any, random: Any = random) -> Any:
                t = wide(t)
                if not isinstance(t, torch.Tensor) or not t.is_floating_point():
                    return t
                return t * (1 + amount * (2 * torch.rand(t.shape, generator=random, dtype=torch.float64) - 1))

            shaken.append(evaluated(case, shake, shake if len(case.lines) > 1 else wide))
        if compare.as_sure(ours, exact, shaken):
            return Outcome(EXPLAINED, rules.CONDITION.name, said)
    except (RuntimeError, TypeError, ValueError, IndexError):  # operators without float64, or types that are named in the statements  # noqa: E501
        pass
    names = " ".join(
        dict.fromkeys(re.findall(r"(?:torch|F|functional|\.)\.?(\w+)\(", " ".join(e for _, e in case.lines)))
    )
    return Outcome(
        WRONG, f"{door}: {names}"[:120], said, ours, {"eager": want, **({"eager in float64": exact} if exact else {})}
    )


def known(case: Case) -> dict[str, Any]:
    """Every value by name, by eager PyTorch."""
    values = dict(case.arrays)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for name, expression in case.lines:
            try:
                values[name] = eval(expression, dict(torch_draw.SCOPE), dict(values))
            except Exception:  # what was left out is missing here
                break
    return {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}


def as_inputs(values: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Values as inputs and buffers of a smaller module."""
    return {n if n in case.arrays else f"x{n[1:]}": v for n, v in values.items()}


def renamed(expression: str, read: Sequence[str], case: Case) -> str:
    """A statement with the names of `as_inputs`."""
    return re.sub(
        r"\w+", lambda m: f"x{m.group(0)[1:]}" if m.group(0) in read and m.group(0) not in case.arrays else m.group(0),
        expression
    )


def trimmed(case: Case) -> Case:
    """The case without the arrays that nothing reads; one input stays."""
    read = {w for _, e in case.lines for w in re.findall(r"\w+", e)}
    kept = {n: t for n, t in case.arrays.items() if n in read}
    if not any(n[0] == "x" for n in kept):
        kept = {f"x{n[1:]}": t for n, t in kept.items()} if len(kept) == 1 else kept
        lines = tuple(
            (n, re.sub(r"\bw(\d+)\b", r"x\1", e)) for n, e in case.lines
        ) if kept and next(iter(kept))[0] == "x" else case.lines
        return replace(case, arrays=kept, lines=lines)
    return replace(case, arrays=kept)


def plainer(t: Any) -> Iterator[Any]:
    """Tensors with plainer values and smaller sizes."""
    if t.numel() > 1:
        for axis, n in enumerate(t.shape):
            if n > 1:
                yield t.narrow(axis, 0, n // 2).clone()
    if t.numel() and bool(t.bool().any()):
        yield torch.zeros_like(t)
        if t.is_floating_point() and bool((t != t.round()).any()):
            yield t.round()
        for k in torch.nonzero(t.reshape(-1)).reshape(-1)[:24].tolist():
            changed = t.clone()
            changed.reshape(-1)[k] = 0
            yield changed
