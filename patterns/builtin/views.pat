# Sub-patterns: one function, in the ways that exporters write it. The patterns of the other files use them.

view Negated(x) = Neg(x) | Mul(x, -1) | Sub(0, x) | Div(x, -1)
view Square(x) = Pow(x, 2) | Mul(x, x)
view Cube(x)   = Pow(x, 3) | Mul(x, x, x) | Mul(x, Pow(x, 2))
view Root(x)   = Sqrt(x) | Pow(x, 0.5)

view Inverse(x) = Reciprocal(x) | Div(1, x) | Pow(x, -1)

# 1 / sqrt(y), and x / sqrt(y)
view InverseRoot(y) = Inverse(Root(y)) | Pow(y, -0.5) | Root(Inverse(y))
view DivRoot(x, y)  = Mul(x, InverseRoot(y)) | Div(x, Root(y))

# x / sqrt(y) * s, with any nesting of the product and any divided factor
view DivRootMul(x, y, s) = Mul(x, InverseRoot(y), s) | Div(Mul(x, s), Root(y)) | Mul(x, Div(s, Root(y))) | Mul(Div(x, Root(y)), s)

# the mean of the squares over the last axis
view MeanSquare(x) = Mean(Square(x))

# 1 / (1 + exp(-x))
view ExpOnePlus(x) = Add(1, Exp(Negated(x)))
view Logistic(x)   = Sigmoid(x) | Inverse(ExpOnePlus(x))

# x * sigmoid(x), and times u in any nesting; the activation may be computed in a wider type
view Silu(x)       = Mul(x, Logistic(x)) | Div(x, ExpOnePlus(x)) | Swish<alpha=1>(x) | com.microsoft.QuickGelu<alpha=1>(x)
view SiluMul(x, u) = SwiGLU<alpha=1>(x, u) | Mul(x, Logistic(x), u) | Mul(Silu(x) | Cast(Silu(Cast(x))), u) | Mul(x, Div(u, ExpOnePlus(x))) | Div(Mul(x, u), ExpOnePlus(x))

# gelu(x) by tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), and times u
view TanhArg(x)    = Mul(0.7978845608028654, Add(x, Mul(0.044715, x, x, x) | Mul(0.044715, Cube(x)) | Mul(0.044715, x, Pow(x, 2)))) | Mul(0.7978845608028654, x, Add(1, Mul(0.044715, Pow(x, 2)) | Mul(0.044715, x, x)))
view OnePlusTanh(x) = Add(1, Tanh(TanhArg(x)))
view GeluTanh(x)   = Gelu<approximate="tanh">(x) | com.microsoft.FastGelu(x) | Mul(0.5, x, OnePlusTanh(x)) | Mul(Div(x, 2), OnePlusTanh(x))
view GeluTanhMul(x, u) = Mul(0.5, x, OnePlusTanh(x), u) | Mul(Div(x, 2), OnePlusTanh(x), u) | Mul(GeluTanh(x) | Cast(GeluTanh(Cast(x))), u)

# gelu(x) by erf: 0.5 x (1 + erf(x / sqrt(2))), and times u
view ErfArg(x)     = Div(x, 1.4142135623730951) | Mul(x, 0.7071067811865476)
view OnePlusErf(x) = Add(1, Erf(ErfArg(x)))
view GeluErf(x)    = Gelu<approximate="none">(x) | com.microsoft.Gelu(x) | Mul(0.5, x, OnePlusErf(x)) | Mul(Div(x, 2), OnePlusErf(x))
view GeluErfMul(x, u) = Mul(0.5, x, OnePlusErf(x), u) | Mul(Div(x, 2), OnePlusErf(x), u) | Mul(GeluErf(x) | Cast(GeluErf(Cast(x))), u)

# Clamping on both sides, and only from above
view Clamp(x, low, high)  = Clip(x, low, high) | Min(Max(x, low), high) | Max(Min(x, high), low)
view ClampAbove(x, high)  = Clip<min="none">(x, _, high) | Min(x, high)
