"""The `dask` command in a process that ends with the tests: `python dask_process.py LIFE worker tcp://…`."""

from __future__ import annotations

import sys

from tilewright.runtime.worker_main import end_with


def main() -> None:
    from distributed.cli import dask_scheduler, dask_worker

    end_with(int(sys.argv[1]))
    {"scheduler": dask_scheduler, "worker": dask_worker}[sys.argv[2]].main(sys.argv[3:], standalone_mode=True)


if __name__ == "__main__":
    main()
