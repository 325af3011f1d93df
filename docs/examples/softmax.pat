# A softmax that takes the maximum off first, which Softmax does itself: how PyTorch writes the attention of gpt-oss. onnxruntime's
# CUDA provider has no ReduceMax of bfloat16, so that without this such a model does not load there.

pattern ShiftedSoftmax(x) -> y {
  y = Softmax<axis=-1>(Sub(x, ReduceMax<axes=[-1], keepdims=1>(x)))
  where type(x) == type(y)
} => Softmax(x; axis=-1)
