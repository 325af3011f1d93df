# What makes scores of a router's logits, under the names of mojo.TopKRouter's attribute score, or the logarithm of such scores. These are
# no patterns of their own: the reader of routers tries them at what a choice is made among.

pattern softmax(x) -> y {
  e = Exp(Sub(x, ReduceMax<axes=[-1], keepdims=1>(x))) | Exp(x)
  y = Softmax<axis=-1>(x) | Exp(LogSoftmax<axis=-1>(x)) | Div(e, ReduceSum<axes=[-1], keepdims=1>(e))
} => Identity(x)

pattern logsoftmax(x) -> y {
  y = LogSoftmax<axis=-1>(x) | Log(Softmax<axis=-1>(x))
} => Identity(x)

pattern sigmoid(x) -> y {
  y = Logistic(x)
} => Identity(x)

pattern sqrtsoftplus(x) -> y {
  y = Root(Softplus(x) | Log(Add(Exp(x), 1)))
} => Identity(x)

pattern sqrtsoftplus(x) -> y {
  y = Root(Where(Greater(x, $most), x, Softplus(x) | Log(Add(Exp(x), 1))))
  where most >= 20
} => Identity(x)
