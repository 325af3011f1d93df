# Gated linear units (Shazeer 2020): act(gate) * up of a dense MLP. Experts have patterns of their own.

pattern SwiGLU(gate, up) -> y {
  anchor Sigmoid, Swish
  y = SiluMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="silu", alpha=1.0, limit=0.0, up_offset=0.0)

pattern GeGLU(gate, up) -> y {
  anchor Gelu, Tanh
  y = GeluTanhMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="gelu_tanh", alpha=1.0, limit=0.0, up_offset=0.0)

pattern GeGLU(gate, up) -> y {
  anchor Gelu, Erf
  y = GeluMul(gate, up)
  where sameshape(gate, up) && sameshape(gate, y) && type(gate) == type(up) && !routed(gate)
} => mojo.GLU(gate, up; activation="gelu", alpha=1.0, limit=0.0, up_offset=0.0)
