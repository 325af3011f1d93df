# The keys with their last two axes exchanged, as torch's ONNX exporter writes scaled_dot_product_attention: flattened to three dimensions,
# transposed and reshaped back, which takes a dozen nodes for the shapes. Runtimes can fuse a plain Transpose into the product with the
# queries (onnxruntime's FusedMatMul), so that they do not copy the keys of the whole cache at every step.

pattern KeyTranspose(k) -> y {
  flat = Reshape(k, _)
  y    = Reshape(Transpose<perm=[0,2,1]>(flat), _)
  where rank(k) == 4 && samedim(flat, 1, k, 2) && samedim(flat, 2, k, 3) && samedim(y, 0, k, 0) && samedim(y, 1, k, 1) && samedim(y, 2, k, 3) && samedim(y, 3, k, 2) && type(k) == type(y)
} => Transpose(k; perm=[0, 1, 3, 2])
