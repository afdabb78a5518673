"""Functions that dispatch on the keys of a target: `tvm.target.generic_func` and the named functions of
`override_native_generic_func`.

    @generic_func
    def tile(n): return 4

    @tile.register(["arm_cpu", "cpu"])
    def tile_of_processors(n): return 8

    with Target("llvm"):
        tile(100)                    # 8: the first key of the target that has a function
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError

Function = Callable[..., Any]


class GenericFunc:
    """A function with an implementation for each target key, and a default for all other targets."""

    def __init__(self, name: str = "", default: Function | None = None) -> None:
        self.name, self.fdefault = name, default
        self.functions: dict[str, Function] = {}
        """The implementations by target key."""
        self.__doc__ = default.__doc__ if default is not None else None

    def implementation(self, target: Target | None) -> Function | None:
        """Return the implementation for a target, excluding the default; None if no key of the target has one."""
        return (
            next((self.functions[k] for k in target.keys if k in self.functions), None) if target is not None else None
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the implementation for the current target, else the default.

        Raises `OptionError` if there is neither.
        """
        chosen = self.implementation(Target.current()) or self.fdefault
        if chosen is None:
            raise OptionError(
                f"the generic function '{self.name}' has no implementation for the current target and no default",
                code="TW0213")
        return chosen(*args, **named)

    def set_default(self, func: Function, allow_override: bool = False) -> None:
        """Set the default. Raises `OptionError` if there is one, unless `allow_override` is set."""
        if self.fdefault is not None and not allow_override:
            raise OptionError(
                f"the generic function '{self.name}' has a default; replace it with allow_override=True", code="TW0212")
        self.fdefault = func

    def register(
        self, first: Any, second: Any = None, override: bool = True, *, allow_override: bool | None = None
    ) -> Function:
        """Register an implementation for one target key or several: `register(func, keys)`, or `register(keys)` as a
        decorator.

        Raises `OptionError` if a key already has an implementation that may not be replaced.
        """
        func, keys = (first, second) if callable(first) else (second, first)
        replace = override if allow_override is None else allow_override

        def add(function: Function) -> Function:
            for key in (keys,) if isinstance(keys, str) else tuple(keys):
                if key in self.functions and not replace:
                    raise OptionError(
                        f"the generic function '{self.name}' has an implementation for the key '{key}'; replace it "
                        "with override=True", code="TW0212")
                self.functions[key] = function
            return function

        return add if func is None else add(func)

    def get_packed_func(self) -> Function:
        """Return the function for the current target, which later registrations do not change."""
        chosen = self.implementation(Target.current()) or self.fdefault
        return self if chosen is None else chosen

    dispatch_func = property(get_packed_func)


_NATIVE: Final[dict[str, GenericFunc]] = {}
"""Generic functions by name, filled while modules are imported and by programs."""


def get_native_generic_func(name: str) -> GenericFunc:
    """Return the generic function of that name; a new one is created without implementations."""
    return _NATIVE.setdefault(name, GenericFunc(name))


def generic_func(fdefault: Function) -> GenericFunc:
    """Make a generic function whose default is the decorated function."""
    return GenericFunc(fdefault.__name__, fdefault)


def override_native_generic_func(func_name: str) -> Callable[[Function], GenericFunc]:
    """Return a decorator that makes a function the default of the generic function `func_name`, and returns that
    generic function."""

    def decorate(fdefault: Function) -> GenericFunc:
        generic = get_native_generic_func(func_name)
        generic.set_default(fdefault, allow_override=True)
        generic.__doc__ = fdefault.__doc__
        return generic

    return decorate


__all__: Sequence[str] = ["GenericFunc", "generic_func", "get_native_generic_func", "override_native_generic_func"]
