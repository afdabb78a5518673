"""`IRModule`: the functions and data types of a program, by name. Passes treat a module as a value: they return a new
one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.base.containers import Items
from tilewright.base.errors import CompileError
from tilewright.base.settings import nearest
from tilewright.base.types import GlobalTypeVar
from tilewright.ir import dialects
from tilewright.ir.container import Map


class _Definitions(dict[Any, Any]):
    """Definitions of data types by name; `items()[0]` is the first one."""

    __slots__ = ()

    def items(self) -> Items:  # type: ignore[override]
        return Items(self)


class IRModule:
    """Functions (`relay.Function`, `tir.PrimFunc`) by global name, definitions of data types, and attributes.

    `IRModule({"main": f})`, `IRModule({relay.GlobalVar("main"): f})`, `IRModule.from_expr(f)`. Functions keep the order
    in which they were added. Constants are shared between modules, never copied.
    """

    __slots__ = ("__weakref__", "_functions", "_names", "attrs", "type_definitions")

    def __init__(
        self, functions: Mapping[Any, Any] | None = None, type_definitions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None
    ) -> None:
        self._functions: dict[str, Any] = {}
        self._names: dict[str, Any] = {}
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.type_definitions: dict[Any, Any] = _Definitions()
        for header, data in (type_definitions or {}).items():
            self[header] = data
        for name, function in (functions or {}).items():
            self[name] = function

    @classmethod
    def from_expr(
        cls, expr: Any, functions: Mapping[Any, Any] | None = None, type_defs: Mapping[Any, Any] | None = None
    ) -> IRModule:
        """Return a module with `expr` as its `main`; an expression becomes a function of its free variables, in order
        of use."""
        return cls({**(functions or {}), "main": dialects.as_function(expr)}, type_defs)

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, GlobalTypeVar):
            return self.lookup_type(name.name_hint)
        key = _name(name)
        found = self._functions.get(key)
        if found is None:
            raise CompileError(f"the module has no function '{key}'{nearest(key, self._functions)}", code="TW0401")
        return found

    def __setitem__(self, name: Any, function: Any) -> None:
        """Set a function, or a data type by its `GlobalTypeVar`. An expression becomes a function of its free
        variables."""
        if isinstance(name, GlobalTypeVar):
            self.type_definitions[name] = function
            return
        key = _name(name)
        bare = str(getattr(function, "type_key", "")).startswith("relay.") and not hasattr(function, "params")
        self._functions[key] = dialects.as_function(function) if bare else function
        if not isinstance(name, str):
            self._names[key] = name

    def __contains__(self, name: Any) -> bool:
        return _name(name) in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def same_as(self, other: object) -> bool:
        """Return whether `other` is this module itself."""
        return self is other

    def functions_items(self) -> list[tuple[Any, Any]]:
        """Return the functions with their `GlobalVar`s."""
        return list(self.functions.items())

    def items(self) -> list[tuple[str, Any]]:
        """Return the functions with their names."""
        return list(self._functions.items())

    @property
    def functions(self) -> Map:
        """The functions by `GlobalVar`."""
        return Map({self.get_global_var(name): f for name, f in self._functions.items()})

    def get_global_var(self, name: str) -> Any:
        """Return the `GlobalVar` of a function; always the same object for one module."""
        if name not in self._names:
            self._names[name] = dialects.global_var(name, self[name])
        return self._names[name]

    def get_global_vars(self) -> list[Any]:
        """Return the `GlobalVar`s of all functions, in order."""
        return [self.get_global_var(name) for name in self._functions]

    def lookup_type(self, name: str) -> Any:
        """Return the definition of a data type by name. Raises `CompileError` with the nearest name."""
        names = {g.name_hint: d for g, d in self.type_definitions.items()}
        if name not in names:
            raise CompileError(f"the module has no data type '{name}'{nearest(name, names)}", code="TW0401")
        return names[name]

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """Return the `GlobalTypeVar` of a data type."""
        header: GlobalTypeVar = self.lookup_type(name).header
        return header

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        """Return the names of all data types, in order."""
        return list(self.type_definitions)

    def get_type(self, name: str) -> tuple[Any, ...]:
        """Return a data type's name and its constructors."""
        data = self.lookup_type(name)
        return (data.header, *data.constructors)

    def get_constructor(self, type_name: str, constructor: str) -> Any:
        """Return a constructor by the name of its data type and its own."""
        return self.lookup_type(type_name)[constructor]

    def lookup(self, name: Any) -> Any:
        """Return `module[name]`; TVM's name for it."""
        return self[name]

    Lookup = lookup

    def update(self, other: IRModule | Mapping[Any, Any]) -> None:
        """Add the functions and data types of `other`, replacing those of the same name."""
        for name, function in getattr(other, "functions", other).items():
            self[name] = function
        self.type_definitions.update(getattr(other, "type_definitions", {}))

    def update_func(self, name: Any, function: Any) -> None:
        """Replace the function of that name."""
        self[name] = function

    def _add(self, var: Any, val: Any, update: bool = False) -> None:
        """Add a function or a data type, under TVM's name. Raises `CompileError` for a name that is taken, unless
        `update` is set."""
        if not update and (var in self or var in self.type_definitions):
            raise CompileError(
                f"the module has '{_name(var)}' already; replace it with module[name] = …", code="TW0212")
        self[var] = val

    def remove(self, name: Any) -> None:
        """Remove a function. Raises `CompileError` if it does not exist."""
        key = _name(name)
        _ = self[key]
        del self._functions[key]
        self._names.pop(key, None)

    def copy(self) -> IRModule:
        """Return a module with the same functions that can be changed independently."""
        new = IRModule(self._functions, self.type_definitions, self.attrs)
        new._names.update(self._names)
        return new

    def map_functions(self, f: Callable[[Any], Any], kind: type) -> IRModule:
        """Apply `f` to every function that is a `kind`; return this module if nothing changed."""
        changed = {n: g for n, old in self._functions.items() if isinstance(old, kind) and (g := f(old)) is not old}
        if not changed:
            return self
        new = self.copy()
        new._functions.update(changed)
        return new

    def with_attr(self, key: str, value: Any) -> IRModule:
        """Return the same module with one more attribute."""
        return self.with_attrs({key: value})

    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """Return the same module with more attributes."""
        new = self.copy()
        new.attrs.update(attrs)
        return new

    def without_attr(self, key: str) -> IRModule:
        """Return the same module without an attribute."""
        new = self.copy()
        new.attrs.pop(key, None)
        return new

    def get_attr(self, key: str) -> Any:
        """Return an attribute, or None."""
        return self.attrs.get(key)

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes as a new dictionary."""
        return dict(self.attrs)

    def _import(self, file_to_import: str | Path) -> None:
        """Add the definitions of a file of Relay text."""
        path = Path(file_to_import)
        self.update(dialects.parse(path.read_text(encoding="utf-8"), str(path), self))

    def import_from_std(self, name: str) -> None:
        """Add the definitions of a file of the standard library: `prelude.rly`. Raises `CompileError` for an unknown
        name."""
        folder = Path(__file__).parent.parent / "relay" / "std"
        names = sorted(path.name for path in folder.glob("*.rly"))
        if name not in names:
            raise CompileError(f"the standard library has no '{name}'; it has {', '.join(names)}", code="TW0401")
        self.update(dialects.parse((folder / name).read_text(encoding="utf-8"), name, self))

    def astext(
        self, show_meta_data: bool = True, annotate: Callable[[Any], str] | None = None, show_spans: bool = False
    ) -> str:
        """Return the module as text for `parse`. `annotate` and `show_spans` are those of `relay.astext`."""
        return dialects.astext(self, show_meta_data, annotate, show_spans)

    def script(self, *, show_meta: bool = False) -> str:
        """Return the text of the module's Relay and TIR functions; with `show_meta`, followed by their constants."""
        return self.astext(show_meta_data=show_meta)

    def show(self) -> None:
        """Print the text of the module."""
        print(self.script())

    def __repr__(self) -> str:
        return self.astext(show_meta_data=False)

    def __copy__(self) -> IRModule:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> IRModule:
        """Return a shallow copy, since functions never change."""
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as JSON."""
        return dialects.pickled(self)


def _name(key: Any) -> str:
    name = key if isinstance(key, str) else getattr(key, "name_hint", None)
    if not isinstance(name, str):
        raise CompileError(f"{key!r} is not the name of a function; use a string or a GlobalVar", code="TW0401")
    return name
