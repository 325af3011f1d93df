# RMSNorm as exporters write it (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + epsilon) * scale.
# The scale comes after the cast back to the type of the weights (Llama) or before the cast back to the type of x (Gemma,
# OLMo2, gpt-oss); without casts the two are the same. A LayerNorm without bias is an RMSNorm of x - mean(x): it is left alone.

# The sum of a residual connection and its norm; the sum is an output, because later layers read it. (Where queries are
# normalised after their rotary embedding, the sum is the rotary's, and no residual.)
pattern AddRMSNorm(x, residual, scale) -> y, sum {
  anchor ReduceMean
  sum = Add(x, residual)
  xf  = Cast?(sum)
  v   = Add(MeanSquare(xf), $epsilon)
  n   = DivRoot(xf, v)
  y   = Mul(Cast(n), scale) as after | Cast?(Mul(n, Cast?(scale))) | Cast?(Mul(xf, InverseRoot(v), Cast?(scale)))
  where rank(scale) == 1 && epsilon > 0 && dim(scale, 0) == dim(sum, -1) && !centered(sum) && !is(sum, "RotaryEmbedding") && sameshape(x, residual) && sameshape(x, y) && before(scale, sum) && (after == 1 && type(y) == type(scale) || after == 0 && type(y) == type(sum))
} => mojo.AddRMSNorm(x, residual, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)

pattern RMSNorm(x, scale) -> y {
  anchor ReduceMean
  xf = Cast?(x)
  v  = Add(MeanSquare(xf), $epsilon)
  n  = DivRoot(xf, v)
  y  = Mul(Cast(n), scale) as after | Cast?(Mul(n, Cast?(scale))) | Cast?(Mul(xf, InverseRoot(v), Cast?(scale)))
  where rank(scale) == 1 && epsilon > 0 && dim(scale, 0) == dim(x, -1) && !centered(x) && sameshape(x, y) && (after == 1 && type(y) == type(scale) || after == 0 && type(y) == type(x))
} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)
