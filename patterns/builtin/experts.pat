# What stands between the two products of an expert: the activation of a gate times up, or of the whole. These are no patterns of
# their own; the form of package patterns that finds experts tries them at what a down projection reads.

pattern Gated(gate, up) -> y {
  anchor Sigmoid, Swish
  g = ClampAbove(gate, $limit)
  u = Clamp(up, $least, $limit)
  y = Mul(Add?(u, $offset), g, Logistic(Mul?(g, $alpha))) | Mul(Add?(u, $offset), Mul(g, Logistic(Mul?(g, $alpha))) | Swish<alpha=$alpha>(g))
  where limit > 0 && least == -limit
} => mojo.GLU(gate, up; activation="silu", alpha=alpha, limit=limit, up_offset=offset)

pattern Gated(gate, up) -> y {
  anchor Sigmoid, Swish
  u = Add?(up, $offset)
  y = SiluMul(gate, u)
} => mojo.GLU(gate, up; activation="silu", alpha=1.0, limit=0.0, up_offset=offset)

pattern Gated(gate, up) -> y {
  anchor Sigmoid, Swish, QuickGelu
  gf = Cast?(gate)
  y  = Mul(gate, Logistic(Mul(gate, $alpha)), up) | Mul(Cast?(Mul(gf, Logistic(Mul(gf, $alpha))) | Swish<alpha=$alpha>(gf) | com.microsoft.QuickGelu<alpha=$alpha>(gf)), up)
  where alpha > 0
} => mojo.GLU(gate, up; activation="silu", alpha=alpha, limit=0.0, up_offset=0.0)

pattern Gated(gate, up) -> y {
  anchor Gelu, Tanh
  y = GeluTanhMul(gate, up)
} => mojo.GLU(gate, up; activation="gelu_tanh", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Gated(gate, up) -> y {
  anchor Gelu, Erf
  y = GeluErfMul(gate, up)
} => mojo.GLU(gate, up; activation="gelu", alpha=1.0, limit=0.0, up_offset=0.0)

# Before ReLU, which a square of it is a product with.
pattern Activated(x) -> y {
  anchor Relu
  y = Square(Relu(x))
} => mojo.GLU(x; activation="relu2", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Gated(gate, up) -> y {
  anchor Relu
  y = Mul(Square(Relu(gate)), up)
} => mojo.GLU(gate, up; activation="relu2", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Gated(gate, up) -> y {
  anchor Relu
  y = Mul(Relu(gate), up)
} => mojo.GLU(gate, up; activation="relu", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Activated(x) -> y {
  anchor Sigmoid, Swish
  y = Silu(x)
} => mojo.GLU(x; activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Activated(x) -> y {
  anchor Sigmoid, Swish, QuickGelu
  y = Mul(x, Logistic(Mul(x, $alpha))) | Swish<alpha=$alpha>(x) | com.microsoft.QuickGelu<alpha=$alpha>(x)
  where alpha > 0
} => mojo.GLU(x; activation="silu", alpha=alpha, limit=0.0, up_offset=0.0)

pattern Activated(x) -> y {
  anchor Gelu, Tanh
  y = GeluTanh(x)
} => mojo.GLU(x; activation="gelu_tanh", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Activated(x) -> y {
  anchor Gelu, Erf
  y = GeluErf(x)
} => mojo.GLU(x; activation="gelu", alpha=1.0, limit=0.0, up_offset=0.0)

pattern Activated(x) -> y {
  anchor Relu
  y = Relu(x)
} => mojo.GLU(x; activation="relu", alpha=1.0, limit=0.0, up_offset=0.0)
