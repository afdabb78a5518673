"""Networks of torchvision, timm and transformers through both doors of the PyTorch frontend, compared with torch.

`python benchmarks/torch_models.py` runs them all, each in a process of its own, so that its memory is given back; names
choose, `--door script` or `--door export` is one way of two, `--import-only` stops before compiling, `--here` stays in
this process. A line for each: the largest difference relative to the largest output, or what went wrong; at the end,
how many agree by each door, and those that do not.

`--results FOLDER` writes a file for each network and takes what agreed from there: a run that was stopped goes on, one
after a change runs what failed. `--list` runs nothing, and says what the folder has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import tilewright
from models import declare_missing_operators
from tilewright.relay.frontend.pytorch import from_pytorch

TORCHVISION: Final = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet0_5", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_0",
    "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2",
)
SEGMENTATION: Final = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
VIDEO: Final = ("r3d_18", "mc3_18", "r2plus1d_18")
TIMM: Final = (
    "beit_base_patch16_224", "cait_xxs24_224", "coat_tiny", "convit_tiny", "convmixer_768_32", "convnextv2_atto",
    "crossvit_tiny_240", "cspresnet50", "deit_tiny_patch16_224",
    "dla34", "dpn68", "edgenext_xx_small", "efficientformer_l1", "efficientvit_b0", "eva02_tiny_patch14_224",
    "fastvit_t8", "gcvit_xxtiny", "ghostnet_100", "hardcorenas_a",
    "hrnet_w18_small", "inception_v4", "levit_128s", "mixer_s16_224", "mobilenetv4_conv_small", "mobilevit_xxs",
    "mobilevitv2_050", "mvitv2_tiny", "nfnet_f0",
    "pit_ti_224", "poolformer_s12", "pvt_v2_b0", "repvgg_a0", "res2net50_14w_8s", "resmlp_12_224", "rexnet_100",
    "selecsls42b", "skresnet18", "tinynet_e", "tnt_s_patch16_224",
    "twins_svt_small", "visformer_tiny", "vit_tiny_patch16_224", "volo_d1_224", "xcit_nano_12_p16_224",
)
TRANSFORMERS: Final = (
    "albert", "bart", "bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie",
    "gpt2", "gpt_neo", "gpt_neox", "gptj", "layoutlm",
    "llama", "mistral", "mobilebert", "mpnet", "nystromformer", "opt", "phi", "qwen2", "roberta", "roformer",
    "splinter", "squeezebert", "t5", "xlm-roberta",
)
TOLERANCE: Final = 1e-4
DOORS: Final = ("export", "script")
Made = tuple[Any, tuple[Any, ...]]


def models() -> dict[str, Callable[[], Made]]:
    """A maker of each network, with its inputs, by name."""
    made: dict[str, Callable[[], Made]] = {}
    for name in (*TORCHVISION, *SEGMENTATION, *VIDEO):
        made[f"torchvision/{name}"] = lambda name=name: _torchvision(name)  # type: ignore[misc]
    for name in TIMM:
        made[f"timm/{name}"] = lambda name=name: _timm(name)  # type: ignore[misc]
    for name in TRANSFORMERS:
        made[f"transformers/{name}"] = lambda name=name: _transformer(name)  # type: ignore[misc]
    return made


def _picture(*shape: int) -> tuple[Any, ...]:
    import torch

    return (torch.from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32)),)


class _First:
    """Networks with dictionaries and tuples as outputs give their tensors, in order."""

    @staticmethod
    def of(network: Any) -> Any:
        import torch

        class Tensors(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, *args: Any) -> Any:
                found = self.network(*args)
                values = found.values() if isinstance(found, dict) else found
                return tuple(
                    v for v in values if isinstance(v, torch.Tensor)
                ) if not isinstance(found, torch.Tensor) else found

        return Tensors().eval()


def _torchvision(name: str) -> Made:
    import torchvision

    if name in SEGMENTATION:
        return _First.of(
            getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None).eval()
        ), _picture(1, 3, 128, 128)
    if name in VIDEO:
        return getattr(torchvision.models.video, name)(weights=None).eval(), _picture(1, 3, 8, 56, 56)
    options = {
        "init_weights": True, "aux_logits": False
    } if name == "googlenet" else {"init_weights": True} if name == "inception_v3" else {}
    size = 299 if name == "inception_v3" else 224
    return getattr(torchvision.models, name)(weights=None, **options).eval(), _picture(1, 3, size, size)


def _timm(name: str) -> Made:
    import timm

    network = timm.create_model(name, pretrained=False).eval()
    return network, _picture(1, *network.default_cfg["input_size"])


def _transformer(kind: str) -> Made:
    import torch
    from transformers import AutoConfig, AutoModel

    small: dict[str, Any] = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "d_model": 64,
        "n_embd": 64, "n_layer": 2, "n_head": 4,
             "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 1000, "use_cache": False}
    fresh = AutoConfig.for_model(kind)
    options = {k: v for k, v in small.items() if hasattr(fresh, k)}
    if kind in ("mobilebert", "squeezebert", "t5", "albert", "gpt_neo", "convbert", "gptj", "phi", "bart", "mpnet"):
        options = {
            k: v for k, v in options.items() if k in ("vocab_size", "use_cache", "num_hidden_layers", "num_layers")
        } if kind not in ("gpt_neo",) else {
            "vocab_size": 1000, "use_cache": False, "hidden_size": 64, "num_layers": 2, "num_heads": 4,
            "attention_types": [[["global", "local"], 1]]}
    if kind == "bart":
        options |= {
            "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128
        }
    if "num_key_value_heads" in vars(fresh) or kind in ("llama", "mistral", "qwen2"):
        options["num_key_value_heads"] = 2
    config = AutoConfig.for_model(kind, **options)
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, 999, (1, 16)))
    inputs = (ids, None, ids) if kind == "t5" else (ids,)
    network = AutoModel.from_config(config).eval()
    if kind == "t5":
        whole = network

        class Both(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.whole = whole

            def forward(self, a: Any) -> Any:
                return self.whole(input_ids=a, decoder_input_ids=a)

        network, inputs = Both().eval(), (ids,)
    return _First.of(network), inputs


def awake(network: Any) -> None:
    """Weights that a fresh network has at one number (heads at zero, scales of layers near it) become different ones,
    so that all parts of it tell in what it gives."""
    import torch

    with torch.no_grad():
        for weight in network.parameters():
            if weight.numel() > 1 and weight.is_floating_point() and bool((weight == weight.flatten()[0]).all()):
                weight.add_(torch.randn_like(weight) * 0.1)


def through(door: str, network: Any, inputs: tuple[Any, ...]) -> Any:
    """The module and its parameters."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if door == "export":
            return from_pytorch(torch.export.export(network, inputs, strict=False), freeze_params=True)[0]
        traced = torch.jit.trace(network, inputs, check_trace=False)
        infos = [(f"input{k}", (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for k, x in enumerate(inputs)]
        return from_pytorch(traced, infos, freeze_params=True)[0]


def difference(module: Any, network: Any, inputs: tuple[Any, ...]) -> float:
    """The largest difference of any output from torch's, relative to the largest element of it."""
    import torch

    with torch.no_grad():
        wanted = network(*inputs)
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else [w for w in wanted if isinstance(w, torch.Tensor)]
    if any(w.numel() > 1 and bool((w == w.flatten()[0]).all()) for w in wanted):
        raise ValueError("torch gives one number everywhere, which says nothing")
    got = tilewright.compile(module)(*(x.numpy() for x in inputs))
    found = list(got) if isinstance(got, (tuple, list)) else [got]
    if len(found) != len(wanted):
        raise ValueError(f"{len(found)} outputs, and torch gives {len(wanted)}")
    return max(
        float(np.abs(f - w.numpy()).max() / max(1e-30, float(w.abs().max()))) for f,
        w in zip(found, wanted, strict=True)
    )


Line = tuple[str, str, str]
"""A network, a door (none where the network is not made), and what is said of it: FAILED at the beginning of what is
not as it should be."""


def lines(name: str, doors: Sequence[str], import_only: bool) -> Iterator[Line]:
    """What becomes of one network by each door."""
    import torch

    torch.manual_seed(0)
    try:
        network, inputs = models()[name]()
        awake(network)
    except Exception as error:  # a network that the installed release does not have, or cannot make
        yield name, "", f"not made: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return
    for door in doors:
        start = time.perf_counter()
        try:
            module = through(door, network, inputs)
            said = "imported" if import_only else f"{difference(module, network, inputs):.1e}"
            bad = not import_only and not float(said) <= TOLERANCE
        except Exception as error:  # whatever it is, it is this network's line
            said, bad = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", True
        yield name, door, f"{'FAILED ' * bad}{said} ({time.perf_counter() - start:.1f} s)"


def apart(name: str, doors: Sequence[str], import_only: bool, seconds: float) -> Iterator[Line]:
    """The same from a process that ends with it."""
    command = [
        sys.executable, "-W", "ignore", __file__, name, "--here", *(["--door", doors[0]] if len(doors) == 1 else []),
        *(["--import-only"] if import_only else [])
    ]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        written, ended = ran.stdout, f"FAILED the process ended with {ran.returncode}: {ran.stderr[-200:]}"
    except subprocess.TimeoutExpired as error:
        written, ended = (error.stdout or b"").decode(), f"FAILED not ended after {seconds:g} s"
    said = {door: text for line in written.splitlines() for door in ("", *doors) for mark in [
        f"{name} {door}: " if door else f"{name}: "
    ]
            if line.startswith(mark) for text in [line.removeprefix(mark)]}
    if "" in said:
        yield name, "", said[""]
        return
    for door in doors:
        yield name, door, said.get(door, ended)


def kept(name: str, doors: Sequence[str], folder: Path | None) -> list[Line]:
    """What an earlier run wrote of a network: nothing, where a door is missing."""
    file = None if folder is None else folder / f"{name.replace('/', '.')}.json"
    if file is None or not file.exists():
        return []
    found = [(name, door, text) for door, text in json.loads(file.read_text()).items() if door in ("", *doors)]
    return found if found and (not found[0][1] or len(found) == len(doors)) else []


def keep(name: str, found: Iterable[Line], folder: Path) -> None:
    """Write what was found of a network, beside what is known of its other door."""
    file = folder / f"{name.replace('/', '.')}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    news = {door: text for _, door, text in found}
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**({} if "" in news or "" in known else known), **news}, indent=1))


def summary(found: Sequence[Line], doors: Sequence[str]) -> str:
    """How many agree by each door, and which do not."""
    said = []
    for door in doors:
        of = [line for line in found if line[1] == door]
        failed = [name for name, _, text in of if text.startswith("FAILED")]
        said.append(
            f"{door}: {len(of) - len(failed)} of {len(of)} agree with "
            f"torch{f'; not: {chr(44).join(failed)}' if failed else ''}"
        )
    return "\n".join([*said, f"{sum(not door for _, door, _ in found)} networks could not be made"])


def main(arguments: Sequence[str]) -> int:
    """Print a line for each network and door, and how many agree; 1 where one does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="whole names, or parts of names")
    parser.add_argument("--door", choices=DOORS)
    parser.add_argument("--import-only", action="store_true")
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--seconds", type=float, default=600, help="how long one network may take")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="where a file for each network is")
    parser.add_argument("--list", action="store_true", help="what the folder of results has")
    options = parser.parse_args(arguments)
    table, doors = models(), (options.door,) if options.door else DOORS
    declare_missing_operators()
    chosen = [
        n for n in table if not options.names or n in options.names
        or any(part in n for part in options.names if part not in table)
    ]
    found: list[Line] = []
    for name in chosen:
        of = kept(name, doors, options.results)
        if not options.list and (not of or any(text.startswith("FAILED") or not door for _, door, text in of)):
            ran = lines(name, doors, options.import_only) if options.here else apart(
                name, doors, options.import_only, options.seconds
            )
            of = list(shown(ran))
            if options.results is not None:
                keep(name, of, options.results)
        elif options.list:
            of = list(shown(of))
        found.extend(of)
    print(summary(found, doors))
    return int(any(said.startswith("FAILED") for _, _, said in found))


def shown(found: Iterable[Line]) -> Iterator[Line]:
    """The lines, printed as they come."""
    for name, door, text in found:
        print(f"{name} {door}: {text}" if door else f"{name}: {text}", flush=True)
        yield name, door, text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
