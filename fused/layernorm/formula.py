"""AddLayerNorm in numpy."""
import numpy as np

from formulas import Formula, rounded


def add_layer_norm(types, x, residual, scale, bias, x_bias, epsilon):
    """AddLayerNorm, in float64 except its roundings."""
    if x_bias is not None:
        x = rounded(x + x_bias, types[1])
    total = rounded(x + residual, types[1])
    centered = rounded(total, types[0]).astype(np.float64)
    centered = centered - centered.mean(-1, keepdims=True)
    n = centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + epsilon)
    return [rounded(n * scale + bias, types[0]), total]


FORMULAS = {
    "AddLayerNorm": Formula(add_layer_norm),
}
