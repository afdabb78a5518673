"""Networks of the collection TLCBench, which are downloaded."""

from __future__ import annotations

from typing import Any, Final

from tilewright import relay
from tilewright.compat.contrib.download import download_testdata
from tilewright.ir.module import IRModule

_BERT: Final = "https://github.com/tlc-pack/TLCBench/raw/main/models/bert-base-qat.onnx"
_INPUTS: Final = ("input_ids", "segment_ids", "input_mask")


def load_quantized_bert_base(
    batch_size: int = 1, seq_len: int = 384
) -> tuple[IRModule, dict[str, Any], list[tuple[str, tuple[int, int], str]]]:
    """Return a BERT that was trained with 8-bit integers, as integer operators: its program, its weights, and the name,
    shape and dtype of each input. Raises an error of the download where the file is not here and there is no network.
    """
    shapes = dict.fromkeys(_INPUTS, (batch_size, seq_len))
    path = download_testdata(_BERT, "bert-base-qat.onnx", module="tlcbench")
    mod, params = relay.frontend.from_onnx(path, shapes, freeze_params=True)
    mod = relay.transform.FakeQuantizationToInteger(use_qat=True)(relay.transform.InferType()(mod))
    return mod, params, [(name, shape, "int64") for name, shape in shapes.items()]
