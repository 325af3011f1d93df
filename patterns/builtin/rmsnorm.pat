# RMSNorm as exporters write it (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + epsilon) * scale.
# The scale comes after the cast back to the type of the weights (Llama) or before the cast back to the type of x (Gemma,
# OLMo2, gpt-oss); without casts the two are equal. A LayerNorm without bias is an RMSNorm of x - mean(x): it is left alone.

# The sum of a residual connection and its norm; the sum is an output, because later layers read it. (If queries are
# normalized after their rotary embedding, the sum belongs to the rotary embedding and is not a residual.)
pattern AddRMSNorm(x, residual, scale) -> y, sum {
  anchor ReduceMean
  sum = Add(x, residual)
  xf  = Cast?(sum)
  v   = Add(MeanSquare(xf), $epsilon)
  n   = DivRoot(xf, v)
  y   = Mul(Cast(n), Row(scale)) as after | Cast?(DivRootMul(xf, v, Cast?(Row(scale))))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && !centered(sum) && !is(sum, "RotaryEmbedding") && sameshape(x, residual) && sameshape(x, y) && !reads(scale, sum) && (after == 1 && type(y) == type(scale) || after == 0 && type(y) == type(sum) && (type(scale) == type(sum) || type(scale) == "float32"))
} => mojo.AddRMSNorm(x, residual, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)

# The scale of a norm over groups: after the channels are reshaped back, or of each group
view ScaledAfter(n, s)        = Mul(Cast(Reshape?(n, _)) | Reshape(Cast(n), _), s)
view Scaled(n, x, v, s)       = Mul(Reshape(n, _), s) | DivRootMul(x, v, s)
view ScaledGroups(x, v, s)    = Reshape?(DivRootMul(x, v, s), _)

# A norm with a SiLU gate, over groups of neighboring channels if a Reshape makes these. Linear attention gates the result
# (Qwen3-Next, OLMo-Hybrid), Mamba-2 the norm's input, Falcon-H1 either, with a scale of [groups, channels] (grid).
pattern GatedRMSNorm(x, gate, scale) -> y {
  anchor ReduceMean
  xg = Reshape?(Cast?(x), _)
  v  = Add(MeanSquare(xg), $epsilon)
  n  = DivRoot(xg, v)
  s  = (ScaledAfter(n, Row(scale)) | Reshape(Mul(Cast(n), scale), _) as grid) as after | Scaled(n, xg, v, Cast?(Row(scale))) | ScaledGroups(xg, v, Cast?(scale)) as grid
  y  = Cast?(SiluMul(Cast?(gate), Cast?(s)))
  where epsilon > 0 && sameshape(x, y) && sameshape(gate, y) && type(y) == type(gate) && (type(x) == type(y) || after == 0 && type(x) == "float32") && (type(scale) == type(y) || after == 0 && type(scale) == "float32") && (grid == 0 && dim(scale, -1) == dim(x, -1) || grid == 1 && rank(scale) == 2 && dim(scale, -1) == dim(xg, -1) && dim(scale, -2) * dim(xg, -1) == dim(x, -1))
} => mojo.GatedRMSNorm(x, gate, scale; gate_first=0, groups=dim(x, -1) / dim(xg, -1), epsilon=epsilon, scale_after_cast=after)

pattern GatedRMSNorm(x, gate, scale) -> y {
  anchor ReduceMean
  h  = SiluMul(Cast?(gate), Cast?(x))
  hg = Reshape?(h, _)
  v  = Add(MeanSquare(hg), $epsilon)
  n  = DivRoot(hg, v)
  y  = (ScaledAfter(n, Row(scale)) | Reshape(Mul(Cast(n), scale), _) as grid) as after | Cast?(Scaled(n, hg, v, Cast?(Row(scale))) | ScaledGroups(hg, v, Cast?(scale)) as grid)
  where epsilon > 0 && sameshape(x, y) && sameshape(gate, y) && type(y) == type(gate) && (type(x) == type(y) || after == 0 && type(x) == "float32") && (type(scale) == type(y) || after == 0 && type(scale) == "float32") && (grid == 0 && dim(scale, -1) == dim(x, -1) || grid == 1 && rank(scale) == 2 && dim(scale, -1) == dim(hg, -1) && dim(scale, -2) * dim(hg, -1) == dim(x, -1))
} => mojo.GatedRMSNorm(x, gate, scale; gate_first=1, groups=dim(x, -1) / dim(hg, -1), epsilon=epsilon, scale_after_cast=after)

pattern RMSNorm(x, scale) -> y {
  anchor ReduceMean
  xf = Cast?(x)
  v  = Add(MeanSquare(xf), $epsilon)
  n  = DivRoot(xf, v)
  y  = Mul(Cast(n), Row(scale)) as after | Cast?(DivRootMul(xf, v, Cast?(Row(scale))))
  where epsilon > 0 && dim(scale, -1) == dim(x, -1) && !centered(x) && sameshape(x, y) && (after == 1 && type(y) == type(scale) || after == 0 && type(y) == type(x) && (type(scale) == type(x) || type(scale) == "float32"))
} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)

# Without a scale: for example, values that are normalized before attention. Values multiplied with weights of another shape
# are not such norms. (There is no anchor: if this does not match, the pattern with a scale tells why.)
pattern RMSNorm(x) -> y {
  xf = Cast?(x)
  y  = Cast?(DivRoot(xf, Add(MeanSquare(xf), $epsilon)))
  where epsilon > 0 && dim(x, -1) > 0 && !centered(x) && sameshape(x, y) && type(x) == type(y) && !weighted(y)
} => mojo.RMSNorm(x, Expand(1.0, [dim(x, -1)]); axis=-1, epsilon=epsilon, scale_after_cast=0)

# The standard's op (opset 23), which applies the scale after the cast back.
pattern AddRMSNorm(x, residual, scale) -> y, sum {
  anchor RMSNormalization
  sum = Add(x, residual)
  y   = RMSNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(sum, Row(scale))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && !is(sum, "RotaryEmbedding") && sameshape(x, residual) && !reads(scale, sum) && type(y) == type(scale)
} => mojo.AddRMSNorm(x, residual, scale; axis=-1, epsilon=epsilon, scale_after_cast=1)

pattern RMSNorm(x, scale) -> y {
  anchor RMSNormalization
  y = RMSNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(x, Row(scale))
  where epsilon > 0 && dim(scale, -1) == dim(x, -1) && type(y) == type(scale)
} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=1)

# onnxruntime's op, in the standard's domain: it rounds once, after the scale.
pattern AddRMSNorm(x, residual, scale) -> y, sum {
  anchor SimplifiedLayerNormalization
  sum = Add(x, residual)
  y   = SimplifiedLayerNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(sum, Row(scale))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && !is(sum, "RotaryEmbedding") && sameshape(x, residual) && !reads(scale, sum) && type(y) == type(sum) && (type(scale) == type(sum) || type(scale) == "float32")
} => mojo.AddRMSNorm(x, residual, scale; axis=-1, epsilon=epsilon, scale_after_cast=0)

pattern RMSNorm(x, scale) -> y {
  anchor SimplifiedLayerNormalization
  y = SimplifiedLayerNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(x, Row(scale))
  where epsilon > 0 && dim(scale, -1) == dim(x, -1) && type(y) == type(x) && (type(scale) == type(x) || type(scale) == "float32")
} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=0)
