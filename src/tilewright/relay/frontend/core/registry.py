"""The converters of one format, and the binding of a node to the function that converts it.

A converter is a plain function. Its positional parameters are the operator's inputs, its keyword-only parameters the
attributes; names and defaults are those of the format's specification:

    CONVERTERS = Converters("onnx", "tilewright.relay.frontend.onnx.register_converter")
    converter = register_converter = CONVERTERS.converter

    @converter("Elu", since=6)
    def elu(x: Expr, *, alpha: float = 1.0) -> Expr: ...

A converter returns one expression, or a tuple with one for each output. A parameter called `node` receives the `Node`
being converted. An input annotated `Expr | None` may be omitted. An attribute named like a Python keyword ends in an
underscore (`from_`).
"""

from __future__ import annotations

import importlib
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from tilewright.base.errors import ModelError, OpNotImplemented, Origin

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.node import Node

F = TypeVar("F", bound=Callable[..., Any])

REQUIRED: Final = inspect.Parameter.empty
"""Marks a parameter without a default."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The vocabulary of a format's messages, and the deviations from the signature that it allows."""

    attribute: str = "attribute"
    ignored: frozenset[str] = frozenset()
    """Attributes that do not affect the results: hints to a runtime, or properties that the tensors state too."""
    needs_one: bool = False
    """Whether an operator with any number of inputs needs at least one."""
    missing: str = ""
    """Advice to append to the message about a missing attribute."""


@dataclass(frozen=True, slots=True)
class Converter:
    """One version of one operator; `function` converts versions from `since` up to the next entry of the table."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    required: int
    """Number of inputs without a default."""
    optional: frozenset[str]
    """Inputs that may be omitted: those with a default, and those annotated `… | None`."""
    variadic: bool
    gaps: bool
    """Whether inputs of a variadic operator may be omitted: those annotated `… | None`."""
    attributes: Mapping[str, Any]
    """Defaults by name; `REQUIRED` for an attribute without one."""
    wants_node: bool
    terms: Terms = Terms()
    domain: str = ""
    since: int = 1
    takes_unknown: bool = False
    """Whether it accepts inputs of unknown sizes; it raises `NotKnownError` if it needs them."""

    @staticmethod
    def of(name: str, function: Callable[..., Any], terms: Terms = Terms(), *, by_name: bool = False,
           **said: Any) -> Converter:
        """Describe a function by its signature. With `by_name`, all of its parameters are attributes."""
        parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "node"]
        inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and not by_name]
        rest = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
        return Converter(
            name, function, tuple(p.name for p in inputs), sum(p.default is REQUIRED for p in inputs),
            frozenset(p.name for p in inputs if p.default is not REQUIRED or _may_be_none(p)), bool(rest),
            any(map(_may_be_none, rest)), {p.name.rstrip("_"): p.default for p in parameters if p.kind is p.KEYWORD_ONLY
                                           or (by_name and p not in rest)},
            len(parameters) < len(inspect.signature(function).parameters), terms, **said)

    def convert(self, node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Call the function. Raises `ModelError` if the node does not match its signature."""
        return self.bound(node, inputs, attributes)()

    def bound(self, node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Callable[[], Any]:
        """Bind a node to the function without calling it. Raises `ModelError` if the node does not match its signature.
        """
        self._check_inputs(node, inputs)
        given = {}
        for name, value in attributes.items():
            if name in self.attributes:
                given[f"{name}_" if keyword.iskeyword(name) else name] = value
            elif name not in self.terms.ignored:
                node.refuse_attribute(self, name, value)
        for name, default in self.attributes.items():
            if default is REQUIRED and name not in attributes:
                raise ModelError(f"{self.terms.attribute} '{name}' is missing{self.terms.missing}", node.origin,
                                 code="TW0109")
        if self.wants_node:
            given["node"] = node
        return partial(self.function, *inputs, **given)

    def _check_inputs(self, node: Node, inputs: Sequence[Any]) -> None:
        count, most = len(inputs), len(self.inputs)
        if count > most and not self.variadic:
            raise ModelError(
                f"{count} inputs are given, but {self.name} takes at most {most}: "
                f"{', '.join(self.inputs)}", node.origin,
                code="TW0109")
        for k, name in enumerate(self.inputs[: max(self.required, count)]):
            if k >= count or (inputs[k] is None and name not in self.optional):
                raise ModelError(f"input '{name}' is missing", node.origin, code="TW0109")
        if self.variadic and ((self.terms.needs_one and not count)
                              or (not self.gaps and any(x is None for x in inputs[most:]))):
            raise ModelError(f"{self.name} needs at least one input, and no input may be omitted", node.origin,
                             code="TW0109")


class Converters(dict[Any, list[Converter]]):
    """The versions of each operator, oldest first, by `(domain, operator)` or by operator alone."""

    def __init__(
        self, name: str, decorator: str, terms: Terms = Terms(), *, domains: Mapping[str, str] | None = None,
        by_name: bool = False,
    ) -> None:
        """`name` is the format's; `decorator` is the path of the function that registers converters, for messages.

        `domains` maps aliases of domains, if the format has domains. With `by_name`, all arguments of operators are
        named.
        """
        super().__init__()
        self.name, self.decorator, self.terms, self._domains, self._by_name = name, decorator, terms, domains, by_name

    def domain_of(self, name: str) -> str:
        """The canonical name of a domain."""
        return (self._domains or {}).get(name, name)

    def key(self, operator: str, domain: str = "") -> Any:
        """The key of an operator in this table."""
        return operator if self._domains is None else (self.domain_of(domain), operator)

    def converter(self, *operators: str, since: int = 1, domain: str = "",
                  takes_unknown: bool = False) -> Callable[[F], F]:
        """Register the decorated function for `operators` from version `since` on, replacing that version."""

        def register(function: F) -> F:
            for operator in operators:
                made = self.described(operator, function, since, domain, takes_unknown)
                versions = self.setdefault(self.key(operator, domain), [])
                versions[:] = sorted([*(v for v in versions if v.since != since), made], key=lambda v: v.since)
            return function

        return register

    def described(self, operator: str, function: Callable[..., Any], since: int = 1, domain: str = "",
                  takes_unknown: bool = False) -> Converter:
        """Describe a function as a converter, without adding it to the table."""
        return Converter.of(
            operator, function, self.terms, by_name=self._by_name, domain=self.domain_of(domain), since=since,
            takes_unknown=takes_unknown)

    def extended(self, functions: Mapping[str, Callable[..., Any]]) -> Converters:
        """A copy of this table in which `functions`, by operator, replace its converters."""
        made = Converters(self.name, self.decorator, self.terms, domains=self._domains, by_name=self._by_name)
        made.update(self)
        made.update((self.key(operator), [self.described(operator, function)])
                    for operator, function in functions.items())
        return made

    def find(self, operator: str, version: int | None = None, domain: str = "") -> Converter | None:
        """The newest converter that is not newer than `version`, or None. Without a version, the newest one."""
        versions = self.get(self.key(operator, domain), ())
        return next((v for v in reversed(versions) if version is None or v.since <= version), None)

    def advice(self, operator: str, domain: str = "") -> str:
        """The decorator that registers a missing converter, for messages."""
        said = f", domain={domain!r}" if self.domain_of(domain) else ""
        return f"@{self.decorator}({operator!r}{said})"

    def refuse_missing(self, missing: Mapping[tuple[str, str], Sequence[str]], file: str = "",
                       ways: str = "") -> NoReturn:
        """Raise `OpNotImplemented` for `missing` operators: names of nodes by domain and operator."""
        lines = []
        for (domain, operator), names in sorted(missing.items()):
            more = f", and {len(names) - 5} more" if len(names) > 5 else ""
            where = f" (domain '{domain}')" if domain else ""
            lines.append(
                f"  {operator}{where}, in {len(names)} node{'s' * (len(names) != 1)}: {', '.join(names[:5])}{more}")
        domain, operator = min(missing)
        said = "\n".join(["these operators of the model have no converter:", *lines])
        raise OpNotImplemented(
            f"{said}\nWrite one and register it before importing: {self.advice(operator, domain)}{ways}", Origin(file)
            if file else None)

    def support_table(self) -> str:
        """The supported operators as a Markdown table: versions, inputs and attributes with their defaults."""
        rows = [f"| {title} |" for title in ("operator | from version | inputs | attributes", "--- | --- | --- | ---")]
        for versions in sorted(self.values(), key=lambda v: (v[0].domain, v[0].name)):
            rows += [_row(version) for version in versions]
        return "\n".join(rows) + "\n"


def families(package: str, names: str) -> tuple[ModuleType, ...]:
    """Import the modules of a package that register converters; `names` are separated by spaces."""
    return tuple(importlib.import_module(f"{package}.{name}") for name in names.split())


def _may_be_none(p: inspect.Parameter) -> bool:
    return str(p.annotation).endswith("None")


def _row(c: Converter) -> str:
    name = f"{c.domain}.{c.name}" if c.domain else c.name
    inputs = [f"{x}?" if x in c.optional else x for x in c.inputs] + ["…"] * c.variadic
    attributes = [a if d is REQUIRED else f"{a}={d!r}" for a, d in c.attributes.items()]
    return f"| `{name}` | {c.since} | {', '.join(inputs)} | {', '.join(attributes)} |".replace("|  |", "| – |")
