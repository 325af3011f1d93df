# Values rounded to 8 bits with a scale for each row: the greatest magnitude of a row becomes 127 or 448. NormQuantize joins such a
# rounding with the norm before it (patterns/norm_quantize.go), so the right sides are never written.

# The greatest magnitude of each row
view RowMost(x) = ReduceMax<axes=[-1], keepdims=1>(Abs(x)) | Unsqueeze<axes=[-1]>(ReduceMax<axes=[-1], keepdims=0>(Abs(x))) | Max(ReduceMax<axes=[-1], keepdims=1>(x), Negated(ReduceMin<axes=[-1], keepdims=1>(x)))
view AtLeast(x, low) = Max(x, low) | Clip<max="none">(x, low)

view Divided(x, s) = Div(x, s) | Mul(x, Inverse(s))
view PerMost(x) = Div(x, $most) | Mul(x, $part)

# Clips change nothing, because no quotient exceeds 127 or 448 by more than float32 rounds. Casts to float8 saturate.
view ToInt8(x) = Cast<to="int8">(Round(x) | Clip(Round(x), -128 | -127, 127) | Round(Clip(x, -128 | -127, 127)))
view ToFloat8(x) = Cast<to="float8e4m3fn">(x | Clip(x, -448, 448))
view To8(x) = ToInt8(x) | ToFloat8(x)

# QuantizeLinear takes the scales of the first axis, or of blocks as long as a row.
view Flat(s) = Squeeze<axes=[-1]>(s) | Reshape(s, [-1])
view ByRow(x, s) = QuantizeLinear<axis=0>(x, Flat(s)) | QuantizeLinear<axis=0>(x, Flat(s), Filled<value=0>())

# A row of zeros would be divided by 0 without a least scale ($least) or a least magnitude ($floor).
pattern Rounded(x) -> y {
  xf   = Cast?(x)
  max  = Cast?(RowMost(x)) | RowMost(xf)
  step = PerMost(AtLeast(max, $floor)) | AtLeast(PerMost(max), $least)
  y    = To8(Divided(xf, step)) | ByRow(xf, step) | QuantizeLinear<axis=-1, block_size=$block>(xf, step) | QuantizeLinear<axis=-1, block_size=$block>(xf, step, Filled<value=0>())
  where type(step) == "float32"
} => Cast(x; to=type(y))

# Multiplied by the inverse of the scale, which later nodes divide by (BitNet)
pattern Rounded(x) -> y {
  xf      = Cast?(x)
  max     = Cast?(RowMost(x)) | RowMost(xf)
  bounded = AtLeast(max, $floor)
  factor  = Div($most, bounded) | Mul($most, Inverse(bounded))
  y       = To8(Mul(xf, factor))
  where type(factor) == "float32"
} => Cast(x; to=type(y))
