# Rotary position embedding (Su et al. 2021) in the half form of GPT-NeoX and Llama:
# x * cos + concat(-second half, first half) * sin, cos and sin as wide as x.

pattern RotaryEmbedding(x, cos, sin) -> y {
  anchor Neg
  y = Add(Mul(x, cos), Mul(Concat<axis=-1>(Negated(SecondHalf(x)), FirstHalf(x)), sin))
  where dim(x, -1) > 0 && dim(cos, -1) == dim(x, -1) && dim(sin, -1) == dim(x, -1) && broadcasts(cos, x) && broadcasts(sin, x) && type(x) == type(cos) && type(x) == type(sin)
} => mojo.RotaryEmbedding(x, cos, sin; interleaved=0, rotary_dim=dim(x, -1))
