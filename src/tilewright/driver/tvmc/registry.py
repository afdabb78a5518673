"""TVM's `tvmc.registry`: `--executor`, `--runtime` and their options in an `argparse` parser.

    generate_registry_args(parser, Executor, "graph")      # --executor, --executor-aot-interface-api, …
    executor = reconstruct_registry_entity(parser.parse_args(), Executor)
"""

from __future__ import annotations

import argparse
from typing import TypeVar

from tilewright.base.errors import OptionError
from tilewright.driver.options import flag
from tilewright.relay.backend.executors import Executor, Runtime

Kind = TypeVar("Kind", Executor, Runtime)


def generate_registry_args(
    parser: argparse.ArgumentParser, registry: type[Executor] | type[Runtime], default: str | None = None
) -> None:
    """Add an option that chooses a kind, and one option for each option of each kind."""
    word = registry.__name__.lower()
    parser.add_argument(f"--{word}", default=default, help=f"{registry.__name__} to compile the model with")
    for kind, known in registry.kinds.items():
        group = parser.add_argument_group(f"{word} {kind}")
        for option in known:
            group.add_argument(f"--{word}-{kind}-{option}", help=f"{registry.__name__} {kind} {option}")


def reconstruct_registry_entity(args: argparse.Namespace, registry: type[Kind]) -> Kind | None:
    """Return the chosen executor or runtime with its options; None if none is chosen. Raises `OptionError` for an
    unknown kind, and for options of another kind."""
    word = registry.__name__.lower()
    name = getattr(args, word, None)
    if name is None:
        return None
    registry.list_registered_options(name)  # refuses an unknown kind
    found = {}
    for kind, known in registry.kinds.items():
        for option, wanted in known.items():
            value = getattr(args, f"{word}_{kind}_{option.replace('-', '_')}", None)
            if value is None:
                continue
            spelled = f"--{word}-{kind}-{option}"
            if kind != name:
                raise OptionError(f"Passed {spelled} but did not specify {kind} {word}", code="TW0204")
            found[option] = flag(spelled, value) if wanted is bool else wanted(value)
    return registry(name, found)
