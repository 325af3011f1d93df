# Sub-patterns: one function, the ways exporters write it. Used by the patterns of the other files.

view Negated(x) = Neg(x) | Mul(x, -1) | Sub(0, x) | Div(x, -1)
view Square(x) = Pow(x, 2) | Mul(x, x)
view Cube(x)   = Pow(x, 3) | Mul(x, x, x) | Mul(x, Pow(x, 2))
view Root(x)   = Sqrt(x) | Pow(x, 0.5)

view Inverse(x) = Reciprocal(x) | Div(1, x) | Pow(x, -1)

# 1 / sqrt(y), and x / sqrt(y)
view InverseRoot(y) = Inverse(Root(y)) | Pow(y, -0.5) | Root(Inverse(y))
view DivRoot(x, y)  = Mul(x, InverseRoot(y)) | Div(x, Root(y))

# mean of the squares over the last axis
view MeanSquare(x) = ReduceMean<axes=[-1], keepdims=1>(Square(x)) | Unsqueeze<axes=[-1]>(ReduceMean<axes=[-1], keepdims=0>(Square(x)))

# 1 / (1 + exp(-x))
view ExpOnePlus(x) = Add(1, Exp(Negated(x)))
view Logistic(x)   = Sigmoid(x) | Inverse(ExpOnePlus(x))

# x * sigmoid(x) * u, however the product is nested, and with a Silu of its own
view SiluMul(x, u) = Mul(x, Logistic(x), u) | Mul(Div(x, ExpOnePlus(x)), u) | Mul(Swish<alpha=1>(x) | com.microsoft.QuickGelu<alpha=1>(x), u)

# gelu(x) * u by tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
view TanhArg(x)    = Mul(0.7978845608028654, Add(x, Mul(0.044715, x, x, x) | Mul(0.044715, Cube(x)) | Mul(0.044715, x, Pow(x, 2)))) | Mul(0.7978845608028654, x, Add(1, Mul(0.044715, Pow(x, 2)) | Mul(0.044715, x, x)))
view GeluTanhMul(x, u) = Mul(Gelu<approximate="tanh">(x), u) | Mul(com.microsoft.FastGelu(x), u) | Mul(0.5, x, Add(1, Tanh(TanhArg(x))), u)

# gelu(x) * u by erf: 0.5 x (1 + erf(x / sqrt(2)))
view ErfArg(x)     = Div(x, 1.4142135623730951) | Mul(x, 0.7071067811865476)
view GeluMul(x, u) = Mul(Gelu<approximate="none">(x), u) | Mul(com.microsoft.Gelu(x), u) | Mul(0.5, x, Add(1, Erf(ErfArg(x))), u)
