# Gated linear units (Shazeer 2020): act(gate) * up of a dense MLP. Experts are found in Go.

# The unit of gpt-oss: the gate clamped from above, up clamped on both sides and shifted. It is also found in experts: this is
# their only form.
pattern ClampedSwiGLU(gate, up) -> y {
  anchor Sigmoid, Swish, SwiGLU
  g = ClampAbove(gate, $limit)
  u = Clamp(up, $least, $limit)
  y = Mul(Add?(u, $offset), g, Logistic(Mul?(g, $alpha))) | Mul(Add?(u, $offset), Swish<alpha=$alpha>(g)) | SwiGLU<alpha=$alpha>(g, Add?(u, $offset))
  where limit > 0 && least == -limit && sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up)
} => mojo.GLU(gate, up; activation="silu", alpha=alpha, limit=limit, up_offset=offset)

pattern SwiGLU(gate, up) -> y {
  anchor Sigmoid, Swish, SwiGLU
  y = SiluMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)

# The same with a factor inside the sigmoid: 1.702 makes it an approximate GELU.
pattern SwiGLU(gate, up) -> y {
  anchor Sigmoid, Swish, SwiGLU, QuickGelu
  gf = Cast?(gate)
  y  = Mul(gate, Logistic(Mul(gate, $alpha)), up) | Mul(Cast?(Mul(gf, Logistic(Mul(gf, $alpha))) | Swish<alpha=$alpha>(gf) | com.microsoft.QuickGelu<alpha=$alpha>(gf)), up) | SwiGLU<alpha=$alpha>(gate, up)
  where alpha > 0 && sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="silu", alpha=alpha, limit=0.0, up_offset=0.0)

pattern GeGLU(gate, up) -> y {
  anchor Gelu, Tanh
  y = GeluTanhMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="gelu_tanh", alpha=1.0, limit=0.0, up_offset=0.0)

pattern GeGLU(gate, up) -> y {
  anchor Gelu, Erf
  y = GeluErfMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="gelu", alpha=1.0, limit=0.0, up_offset=0.0)
