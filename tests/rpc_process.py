"""A program of `tilewright.exec` that ends with the tests: `python rpc_process.py LIFE rpc_server --key board …`."""

from __future__ import annotations

import importlib
import sys

from tilewright.runtime.worker_main import end_with


def main() -> None:
    end_with(int(sys.argv[1]))
    sys.exit(importlib.import_module(f"tilewright.compat.exec.{sys.argv[2]}").main(sys.argv[3:]))


if __name__ == "__main__":
    main()
