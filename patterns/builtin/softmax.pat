# A softmax that takes the greatest score off first, which Softmax does itself: how PyTorch writes the attention of gpt-oss. Without the
# ReduceMax the model also loads where a runtime has none for its type (bfloat16 on CUDA in onnxruntime 1.31).

pattern ShiftedSoftmax(x) -> y {
  anchor ReduceMax
  y = Softmax<axis=-1>(Sub(x, ReduceMax<axes=[-1], keepdims=1>(x)))
  where type(x) == type(y)
} => Softmax(x; axis=-1)
