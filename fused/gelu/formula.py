"""BiasGELU in numpy."""
import numpy as np

from formulas import Formula, glu, rounded


def bias_gelu(x, bias, dtype, activation, alpha):
    """BiasGELU: the gate of a GLU whose up is 1."""
    g = rounded(x + bias, dtype)
    return glu(g, np.ones_like(g), dtype, activation=activation, alpha=alpha)


FORMULAS = {
    "BiasGELU": Formula(lambda types, x, bias, **a: [bias_gelu(x, bias, types[0], **a)]),
}
