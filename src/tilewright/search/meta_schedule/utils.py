"""Base of objects that programs extend, modules in normal form, and functions that run in a child process."""

from __future__ import annotations

import multiprocessing
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.backends.targets.described import is_described
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, ScheduleError
from tilewright.base.global_functions import get_global_func
from tilewright.ir.module import IRModule
from tilewright.tir.stmt import PrimFunc

C = TypeVar("C", bound=type)


class TimedOut(Exception):
    """A function did not return in time, and its process was ended."""


class Extensible:
    """Base of the parts of a search, whose classes programs may extend. The text names the class and the object."""

    def _outer(self) -> Any:
        """Return the object itself, which TVM keeps apart from the part that a program defines."""
        return self

    def clone(self) -> Any:
        """Return another object of the same settings."""
        import copy

        return copy.copy(self)

    def __repr__(self) -> str:
        return f"meta_schedule.{type(self).__name__}({id(self):#x})"


def derived_object(cls: C) -> C:
    """Return a class that extends a part of the search, such as `PyScheduleRule`, unchanged: these are plain classes.
    """
    return cls


def cores_of(target: Target | None) -> int:
    """Return the cores of a target; 1 without one, and for a target for which no code is generated."""
    return 1 if target is None or is_described(target.kind) else target.cores


def normalized_module(mod: PrimFunc | IRModule) -> IRModule:
    """Return a module for a function or a module; a single function is `main`."""
    if isinstance(mod, PrimFunc):
        return IRModule({"main": mod})
    functions = list(mod.items())
    if len(functions) == 1 and isinstance(functions[0][1], PrimFunc) and functions[0][0] != "main":
        new = IRModule({"main": functions[0][1]})
        return new.with_attrs(mod.attrs) if mod.attrs else new
    return mod


def only_function(mod: IRModule) -> PrimFunc:
    """Return the loop program of a module. Raises `ScheduleError` unless there is exactly one."""
    found = [f for _, f in mod.items() if isinstance(f, PrimFunc)]
    if len(found) != 1:
        raise ScheduleError(f"a task is a module with one loop program, but this one has {len(found)}")
    return found[0]


def get_global_func_with_default_on_worker(name: str | Callable[..., Any] | None, default: Any) -> Any:
    """Return a function: `default` for None, a registered one for its name. Raises `OptionError` for an unknown name.
    """
    if name is None:
        return default
    return get_global_func(name) if isinstance(name, str) else name


def in_child(function: Callable[[], Any], timeout: float) -> Any:
    """Return the result of a function that runs in a forked process. Raises its exception, as `OptionError` with the
    traceback, and `TimedOut` after `timeout` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send((True, function()))
        except BaseException:
            sender.send((False, traceback.format_exc()))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads; locks are reset in the child
        child = context.Process(target=run, daemon=True)
        child.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            raise TimedOut
        succeeded, value = receiver.recv()
    except EOFError:
        raise OptionError("the process ended without a result", code="TW1110") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if not succeeded:
        raise OptionError(value, code="TW1110")
    return value
