"""Random numbers drawn with a generator's state: `topi.random.uniform(gen, low, high, out_shape, out_dtype)`."""

from tilewright.topi.drawing import multinomial, normal, threefry_generate, threefry_split, uniform

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_split", "uniform"]
