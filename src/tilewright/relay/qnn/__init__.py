"""QNN: operators of quantized tensors, where a value is `scale * (q - zero_point)`.

`relay.qnn.op.conv2d`, `quantize`, `requantize`, … have the field's names, arguments and attributes. Each has its numpy meaning
and says with which plain operators it is computed (`Op.simplify`); nothing after that knows of quantization.
"""

from tilewright.relay.qnn import arithmetic, op, products, scaling

__all__ = ["arithmetic", "op", "products", "scaling"]
