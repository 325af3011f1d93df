# A softmax that first subtracts the greatest score, which Softmax does itself: PyTorch writes the attention of gpt-oss so. Without the
# ReduceMax the model also loads in runtimes that lack it for its type (bfloat16 on CUDA in onnxruntime 1.31).

pattern ShiftedSoftmax(x) -> y {
  anchor ReduceMax
  y = Softmax<axis=-1>(Sub(x, ReduceMax<axes=[-1], keepdims=1>(x)))
  where type(x) == type(y)
} => Softmax(x; axis=-1)
