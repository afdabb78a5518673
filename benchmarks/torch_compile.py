"""`torch.compile(backend="tilewright")` beside torch itself and inductor, turn by turn in one process.

`python benchmarks/torch_compile.py resnet18 bert --threads 1 2` prints for each network and number of threads the
median of a call by each of the three, the ratios, and how far our outputs are from those of torch relative to the
largest; `small` is a network so small that what a call costs around the program is all that there is. Inductor needs a
C++ compiler. A thread of torch is one of ours.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from models import declare_missing_operators

TOLERANCE: Final = 1e-4
WAYS: Final = ("eager", "inductor", "tilewright")
Made = tuple[Any, tuple[Any, ...]]


def resnet18() -> Made:
    """Torchvision's, of one picture."""
    import torch
    import torchvision

    return torchvision.models.resnet18(weights=None).eval(), (torch.randn(1, 3, 224, 224),)


def bert() -> Made:
    """The size of bert-base, with 128 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    network = BertModel(BertConfig(attn_implementation="sdpa"))

    class Outputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any) -> Any:
            return self.network(ids).last_hidden_state

    return Outputs().eval(), (torch.randint(1, 30000, (1, 128)),)


def small() -> Made:
    """One dense layer: what a call costs around it."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval(), (torch.randn(1, 8),)


NETWORKS: Final[dict[str, Callable[[], Made]]] = {"resnet18": resnet18, "bert": bert, "small": small}


def ready(name: str, threads: int) -> tuple[dict[str, Callable[[], Any]], float]:
    """Calls of a network by each way, compiled; and how far ours is from torch's."""
    import torch

    from tilewright.compiler.torch_backend import compile_graph

    declare_missing_operators()
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    network, inputs = NETWORKS[name]()
    found = {
        "eager": network, "inductor": torch.compile(network),
        "tilewright": torch.compile(network, backend=compile_graph)
    }
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        wanted = network(*inputs)
        got = {way: call(*inputs) for way, call in found.items()}
    far = float((got["tilewright"] - wanted).abs().max() / wanted.abs().max())
    return {way: functools.partial(call, *inputs) for way, call in found.items()}, far


def medians(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Seconds of a call by each way, all in turn for as long as is said."""
    import torch

    taken: dict[str, list[float]] = {way: [] for way in calls}
    until = time.perf_counter() + seconds
    with torch.no_grad():
        while time.perf_counter() < until:
            for way, call in calls.items():
                for counted in (False, True):  # the first after another way finds its data outside of the caches
                    start = time.perf_counter()
                    call()
                    if counted:
                        taken[way].append(time.perf_counter() - start)
    return {way: statistics.median(times) for way, times in taken.items()}


def main(arguments: Sequence[str]) -> int:
    """Print a line for each network and number of threads; 1 where outputs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; resnet18 and bert where none is given"
    )
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args(arguments)
    names = options.names or ["resnet18", "bert"]
    if unknown := sorted(set(names) - set(NETWORKS)):
        parser.error(f"there is no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    wrong = 0
    for name in names:
        for threads in options.threads:
            calls, far = ready(name, threads)
            took = medians(calls, options.seconds)
            times = ", ".join(f"{way} {1e3 * took[way]:.3f} ms" for way in WAYS)
            print(
                f"{name}, {threads} threads: {times}; of inductor's time {took['tilewright'] / took['inductor']:.2f}, "
                f"of torch's {took['tilewright'] / took['eager']:.2f}; "
                  f"difference {far:.1e}{' WRONG' * (not far <= TOLERANCE)}", flush=True)
            wrong += not far <= TOLERANCE
    return int(wrong > 0)


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main(sys.argv[1:]))
