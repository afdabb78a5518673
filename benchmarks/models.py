"""Builds the ONNX models that the benchmarks and the whole-model tests run.

No weights are downloaded: each network is built from its published configuration with random weights of a fixed seed.
Speed does not depend on the values, and correctness is judged against another runtime on the same file. Batch-norm
statistics and biases are moved away from their defaults, so that folding them is exercised.

Files go to `$TILEWRIGHT_MODELS`, else `~/.cache/tilewright/models`. A file that exists is kept; one that is being
written gets its name only when it is whole. Needs torch, and torchvision, timm or transformers for their networks.

    python benchmarks/models.py              # everything
    python benchmarks/models.py resnet50     # one
"""

from __future__ import annotations

import argparse
import contextlib
import operator
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OPSET = 17
SEED = 20240601


@dataclass(frozen=True)
class Source:
    """One network: how it is built, what it is fed, which axes of the inputs and outputs the `_dyn` file leaves open,
    and whether there is an `_int8` file, quantized statically. The kernels were not made for `further` networks: they
    show what others will see."""

    name: str
    build: Callable[[], Any]
    inputs: Callable[[], dict[str, Any]]
    outputs: tuple[str, ...] = ("output",)
    dynamic: bool = False
    further: bool = False
    quantized: bool = False
    open_axes: dict[int, str] = field(default_factory=lambda: {0: "batch"})


def folder() -> Path:
    """Where the models are."""
    chosen = os.environ.get("TILEWRIGHT_MODELS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "tilewright" / "models"


# --- networks
# -----------------------------------------------------------------------------------------------------------


def declare_missing_operators() -> None:
    """Builds of torchvision without its native part have no schema for these, and rules are attached to them on
    import."""
    import torch

    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor",
    ):
        with contextlib.suppress(RuntimeError):  # already declared by the native part
            torch.library.define("torchvision::" + schema.split("(")[0], "(" + schema.split("(", 1)[1])


def _torchvision(name: str, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        declare_missing_operators()
        import torchvision

        return operator.attrgetter(name)(torchvision.models)(weights=None, **options)

    return build


def _segmentation(name: str) -> Callable[[], Any]:
    """The network's scores as the only result."""

    def build() -> Any:
        import torch

        network = _torchvision(f"segmentation.{name}", weights_backbone=None)()

        class Scores(torch.nn.Module):
            """The network as a function of a picture that returns one tensor."""

            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, picture: Any) -> Any:
                return self.network(picture)["out"]

        return Scores()

    return build


def _timm(name: str) -> Callable[[], Any]:
    def build() -> Any:
        declare_missing_operators()
        import timm
        from timm.layers.config import set_fused_attn

        set_fused_attn(False)  # attention written out, as exporters of every age produce it
        return timm.create_model(name, pretrained=False)

    return build


def _transformer(kind: str, **config: Any) -> Callable[[], Any]:
    def build() -> Any:
        import torch

        declare_missing_operators()
        import transformers

        settings = getattr(transformers, kind + "Config")(attn_implementation="eager", **config)
        network = getattr(transformers, kind + "Model")(settings)

        class LastHiddenState(torch.nn.Module):
            """The network as a function of tensors that returns one tensor."""

            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
                more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
                return self.network(input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **more)[0]

        return LastHiddenState()

    return build


def _picture(size: int) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        import torch

        return {"input": torch.randn(1, 3, size, size)}

    return make


def _clip(frames: int, size: int) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        import torch

        return {"input": torch.randn(1, 3, frames, size, size)}

    return make


def _tokens(length: int, vocabulary: int, *names: str) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        import torch

        made = {
            "input_ids": torch.randint(0, vocabulary, (1, length)),
            "attention_mask": torch.ones(1, length, dtype=torch.int64),
            "token_type_ids": torch.zeros(1, length, dtype=torch.int64),
        }
        return {name: made[name] for name in names}

    return make


_BERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

SOURCES: tuple[Source, ...] = (
    Source("resnet18", _torchvision("resnet18"), _picture(224), dynamic=True),
    Source("resnet50", _torchvision("resnet50"), _picture(224), dynamic=True, quantized=True),
    Source("vgg16", _torchvision("vgg16"), _picture(224)),
    Source("mobilenet_v2", _torchvision("mobilenet_v2"), _picture(224), dynamic=True, quantized=True),
    Source("mobilenet_v3_large", _torchvision("mobilenet_v3_large"), _picture(224)),
    Source("inception_v3", _torchvision("inception_v3", init_weights=False, aux_logits=True), _picture(299)),
    Source("densenet121", _torchvision("densenet121"), _picture(224)),
    Source("convnext_tiny", _torchvision("convnext_tiny"), _picture(224)),
    Source("deit_small_patch16_224", _timm("deit_small_patch16_224"), _picture(224), dynamic=True),
    Source("vit_tiny_patch16_224", _timm("vit_tiny_patch16_224"), _picture(224)),
    Source("bert_base", _transformer("Bert"), _tokens(128, 30522, *_BERT_INPUTS), dynamic=True),
    Source(
        "minilm_l6",
        _transformer("Bert", **_MINILM),
        _tokens(128, 30522, *_BERT_INPUTS),
        dynamic=True,
        open_axes={0: "batch", 1: "sequence"},
    ),
    Source("gpt2", _transformer("GPT2"), _tokens(64, 50257, *_BERT_INPUTS[:2]), dynamic=True),
    *(Source(name, _torchvision(name), _picture(224), further=True) for name in (
        "squeezenet1_1", "shufflenet_v2_x1_0", "regnet_y_400mf", "efficientnet_b0", "mnasnet1_0", "swin_t",
        "resnext50_32x4d", "alexnet",
    )),
    Source("googlenet", _torchvision("googlenet", init_weights=False, aux_logits=False), _picture(224), further=True),
    Source("lraspp_mobilenet_v3_large", _segmentation("lraspp_mobilenet_v3_large"), _picture(320), further=True),
    Source("r3d_18", _torchvision("video.r3d_18"), _clip(8, 112), further=True),
    *(
        Source(name, _timm(name), _picture(224), further=True)
        for name in ("mobilenetv4_conv_small", "mixer_s16_224", "poolformer_s12")
    ),
    Source("distilbert", _transformer("DistilBert"), _tokens(128, 30522, *_BERT_INPUTS[:2]), further=True),
    Source(
        "albert", _transformer("Albert", hidden_size=768, num_attention_heads=12, intermediate_size=3072),
        _tokens(128, 30000, *_BERT_INPUTS), further=True
    ),
)


# --- export
# -------------------------------------------------------------------------------------------------------------


def _move_statistics(network: Any, inputs: dict[str, Any]) -> None:
    """Give layers biases that are not zero, and batch norms the statistics of random inputs, moved a little.

    Without the latter, the signal dies on its way through a deep network with random weights: the answer would be the
    same for every input, and comparing answers would find nothing.
    """
    import torch

    norms = [layer for layer in network.modules() if getattr(layer, "running_var", None) is not None]
    with torch.no_grad():
        for layer in network.modules():
            bias = getattr(layer, "bias", None)
            if isinstance(bias, torch.nn.Parameter):
                bias.normal_(0.0, 0.05)
        for norm in norms:
            norm.weight.uniform_(0.8, 1.2)
            norm.momentum = 1.0
            norm.train()
        if norms:
            network(*(torch.randn(4, *value.shape[1:]) for value in inputs.values()))
        for norm in norms:
            norm.eval()
            norm.running_mean += torch.randn_like(norm.running_mean) * norm.running_var.sqrt() * 0.1
            norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.2)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A scratch path that becomes `path` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as scratch:
        partial = Path(scratch) / path.name
        yield partial
        partial.replace(path)


def export(source: Source, path: Path, dynamic: bool) -> None:
    """Write one network to `path`; with `dynamic`, the source's open axes get names instead of sizes."""
    import warnings

    import torch

    torch.manual_seed(SEED)
    network = source.build().eval()
    inputs = source.inputs()
    _move_statistics(network, inputs)
    axes = {name: dict(source.open_axes) for name in inputs}
    axes |= {name: {0: "batch"} if "input_ids" not in inputs else dict(source.open_axes) for name in source.outputs}
    with whole_file(path) as partial, torch.no_grad(), warnings.catch_warnings():
        # the exporter is deprecated and warns about traced constants; the files are checked
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            tuple(inputs.values()),
            str(partial),
            input_names=list(inputs),
            output_names=list(source.outputs),
            dynamic_axes=axes if dynamic else None,
            opset_version=OPSET,
            do_constant_folding=True,
            dynamo=False,
        )


def quantize(source: Source, path: Path) -> None:
    """Write `source` with unsigned activations per tensor and signed weights per channel, as pairs of
    (de)quantizations.

    The ranges are those of four random inputs of a fixed seed; the weights are those of the float file.
    """
    import numpy as np
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class RandomInputs(CalibrationDataReader):
        def __init__(self) -> None:
            draw = np.random.default_rng(SEED)
            shapes = {name: tuple(value.shape) for name, value in source.inputs().items()}
            self.left = [
                {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
                for _ in range(4)
            ]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    with whole_file(path) as partial:
        prepared = partial.with_name("prepared.onnx")
        quant_pre_process(str(ensure(source.name)), str(prepared))
        quantize_static(
            str(prepared), str(partial), RandomInputs(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )


def _variants() -> dict[str, tuple[Source, str]]:
    """Every model by name: its source, and the ending of the name that says how it is written."""
    endings = (("", lambda s: True), ("_dyn", lambda s: s.dynamic), ("_int8", lambda s: s.quantized))
    return {s.name + ending: (s, ending) for s in SOURCES for ending, there in endings if there(s)}


def ensure(name: str) -> Path:
    """The path of model `name` (`resnet50`, `resnet50_dyn`, `resnet50_int8`, …), exported now when it is missing.

    Raises `KeyError` for an unknown name and `ImportError` where the packages that hold the network are missing.
    """
    source, ending = _variants()[name]
    path = folder() / f"{name}.onnx"
    if not path.exists():
        if ending == "_int8":
            quantize(source, path)
        else:
            export(source, path, dynamic=ending == "_dyn")
    return path


def names() -> list[str]:
    """Every model that `ensure` can make."""
    return list(_variants())


def main() -> int:
    """Export what is asked for, one at a time; the exit code is 1 when one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"one of: {', '.join(names())}")
    chosen = parser.parse_args().names
    if unknown := set(chosen) - set(names()):
        parser.error(f"no model called {', '.join(sorted(unknown))}; the models are {', '.join(names())}")
    failed = []
    for name in chosen or names():
        begin = time.perf_counter()
        try:
            path = ensure(name)
        except Exception as error:  # reported here; the other models are still wanted
            print(f"{name:28s} FAILED  {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            failed.append(name)
        else:
            print(
                f"{name:28s} {path.stat().st_size / 1e6:8.1f} MB  {time.perf_counter() - begin:6.1f} s  {path}",
                flush=True
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
