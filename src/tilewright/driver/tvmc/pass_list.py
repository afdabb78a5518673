"""TVM's `tvmc.pass_list`: the names of passes from the text of `--disabled-pass`."""

from __future__ import annotations

import argparse

from tilewright.ir.transform import PASSES


def parse_pass_list_str(input_string: str) -> list[str]:
    """Read names that commas separate; an empty text is one empty name, as in TVM. Raises `argparse.ArgumentTypeError`
    with all names that are no passes, and the names of all passes."""
    names = [name.strip() for name in input_string.split(",")]
    unknown = [name for name in names if name and name not in PASSES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"--disabled-pass: there is no pass {', '.join(unknown)}; choose from {', '.join(sorted(PASSES))}")
    return names
