# The sum of a residual connection and its LayerNorm: before the next block (ViT, Whisper), which also reads the sum, or after
# this one (BERT). The bias of the preceding projection is included if no other node reads the product without it.
pattern AddLayerNorm(x, x_bias, residual, scale, bias) -> y, sum {
  sum = Add(Add(x, Row(x_bias)), residual)
  xf  = Cast?(sum)
  c   = Sub(xf, Mean(xf))
  v   = Add(MeanSquare(c), $epsilon)
  s   = DivRootMul(c, v, Cast?(Row(scale))) | Mul(Cast(DivRoot(c, v)), Row(scale))
  y   = LayerNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(Cast?(sum), Row(scale), Row(bias)) as op | Add(Cast?(s), Row(bias)) | Cast?(Add(s, Cast?(Row(bias))))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && dim(bias, -1) == dim(sum, -1) && sameshape(x, residual) && sameshape(x, y) && (type(y) == type(sum) || op == 1 && type(sum) == "float32") && type(scale) == type(y) && type(bias) == type(y) && !reads(scale, sum) && !reads(bias, sum) && dim(x_bias, -1) == dim(sum, -1) && !reads(x_bias, x)
} => mojo.AddLayerNorm(x, residual, scale, bias, x_bias; epsilon=epsilon)

pattern AddLayerNorm(x, residual, scale, bias) -> y, sum {
  sum = Add(x, residual)
  xf  = Cast?(sum)
  c   = Sub(xf, Mean(xf))
  v   = Add(MeanSquare(c), $epsilon)
  s   = DivRootMul(c, v, Cast?(Row(scale))) | Mul(Cast(DivRoot(c, v)), Row(scale))
  y   = LayerNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(Cast?(sum), Row(scale), Row(bias)) as op | Add(Cast?(s), Row(bias)) | Cast?(Add(s, Cast?(Row(bias))))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && dim(bias, -1) == dim(sum, -1) && sameshape(x, residual) && sameshape(x, y) && (type(y) == type(sum) || op == 1 && type(sum) == "float32") && type(scale) == type(y) && type(bias) == type(y) && !reads(scale, sum) && !reads(bias, sum)
} => mojo.AddLayerNorm(x, residual, scale, bias; epsilon=epsilon)

# The norm of a model without biases (ModernBERT, OLMo): the op adds zeros. A scale computed from x would be another function.
pattern AddLayerNorm(x, residual, scale) -> y, sum {
  sum = Add(x, residual)
  y   = LayerNormalization<axis=-1, epsilon=$epsilon, stash_type=1>(Cast?(sum), Row(scale))
  where epsilon > 0 && dim(scale, -1) == dim(sum, -1) && sameshape(x, residual) && sameshape(x, y) && (type(y) == type(sum) || type(sum) == "float32") && type(scale) == type(y) && !reads(scale, sum)
} => mojo.AddLayerNorm(x, residual, scale, Sub(scale, scale); epsilon=epsilon)

# LayerNorm written out (Ba, Kiros and Hinton 2016): (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale [+ bias]. It becomes the
# standard's op, for which runtimes have kernels. The scale comes before the cast back to the type of x (Cohere) or after it.

pattern LayerNorm(x, scale, bias) -> y {
  anchor ReduceMean
  xf = Cast?(x)
  c  = Sub(xf, Mean(xf))
  v  = Add(MeanSquare(c), $epsilon)
  s  = DivRootMul(c, v, Cast?(Row(scale))) | Mul(Cast(DivRoot(c, v)), Row(scale))
  y  = Add(Cast?(s), Row(bias)) | Cast?(Add(s, Cast?(Row(bias))))
  where epsilon > 0 && dim(scale, -1) == dim(x, -1) && dim(bias, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(scale) && type(x) == type(bias) && type(x) == type(y)
} => LayerNormalization(x, scale, bias; axis=-1, epsilon=epsilon, stash_type=1)

pattern LayerNorm(x, scale) -> y {
  anchor ReduceMean
  xf = Cast?(x)
  c  = Sub(xf, Mean(xf))
  v  = Add(MeanSquare(c), $epsilon)
  y  = Mul(Cast(DivRoot(c, v)), Row(scale)) | Cast?(DivRootMul(c, v, Cast?(Row(scale))))
  where epsilon > 0 && dim(scale, -1) == dim(x, -1) && sameshape(x, y) && type(x) == type(scale) && type(x) == type(y)
} => LayerNormalization(x, scale; axis=-1, epsilon=epsilon, stash_type=1)
