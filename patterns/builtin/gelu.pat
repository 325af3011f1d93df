# The bias of a product and the GELU of the sum (Hendrycks and Gimpel 2016): the nodes between the products of an encoder's MLP.
# A gated unit takes the activation of its gate first.
# (The patterns have no anchors: most activations without a bias before them do not belong to such a block.)
pattern BiasGELU(x, bias) -> y {
  y = GeluErf(Add(x, Row(bias)))
  where dim(bias, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(bias) && !reads(bias, x) && !routed(x)
} => mojo.BiasGELU(x, bias; activation="gelu", alpha=1.0)

pattern BiasGELU(x, bias) -> y {
  y = GeluTanh(Add(x, Row(bias))) | com.microsoft.FastGelu(x, Row(bias))
  where dim(bias, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(bias) && !reads(bias, x) && !routed(x)
} => mojo.BiasGELU(x, bias; activation="gelu_tanh", alpha=1.0)

pattern BiasGELU(x, bias) -> y {
  g = Add(x, Row(bias))
  y = Mul(g, Logistic(Mul(g, $alpha))) | Swish<alpha=$alpha>(g) | com.microsoft.QuickGelu<alpha=$alpha>(g)
  where alpha > 0 && dim(bias, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(bias) && !reads(bias, x) && !routed(x)
} => mojo.BiasGELU(x, bias; activation="silu", alpha=alpha)

pattern BiasGELU(x, bias) -> y {
  anchor BiasGelu
  y = com.microsoft.BiasGelu(x, Row(bias))
  where dim(bias, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(bias)
} => mojo.BiasGELU(x, bias; activation="gelu", alpha=1.0)
