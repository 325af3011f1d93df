# LayerNorm written out (Ba, Kiros and Hinton 2016): (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale [+ bias]. It becomes the
# standard's own op, which runtimes have kernels for. The scale comes before the cast back to the type of x (Cohere) or after it.

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
