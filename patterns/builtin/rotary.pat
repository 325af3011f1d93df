# Rotary position embedding (Su et al. 2021), in any layout of pairs and any spelling: see package rotary.

pattern RotaryEmbedding(x, cos, sin) -> y {
  anchor Neg, Sub
  y = Rotation<interleaved=$interleaved, rotary_dim=$rotary_dim, rotated_side=$rotated_side, output_layout=$output_layout>(x, cos, sin)
} => mojo.RotaryEmbedding(x, cos, sin; interleaved=interleaved, rotary_dim=rotary_dim, rotated_side=rotated_side, output_layout=output_layout)

# By the opposite angle, as an inverse rotation or a product with conjugates.

pattern RotaryEmbedding(x, cos, sin) -> y {
  anchor Neg, Sub
  y = OppositeRotation<interleaved=$interleaved, rotary_dim=$rotary_dim, rotated_side=$rotated_side, output_layout=$output_layout>(x, cos, sin)
} => mojo.RotaryEmbedding(x, cos, Neg(sin); interleaved=interleaved, rotary_dim=rotary_dim, rotated_side=rotated_side, output_layout=output_layout)

# The standard's op (opset 23): its tables have no axis for the heads. With position_ids they hold a row for each possible position,
# without them one for each position of each sequence. Exporters write those for a batch of one, which onnxruntime refuses for
# any other batch, and which broadcast here. Packed heads (x of rank 3) stay as they are.

pattern RotaryEmbedding(x, cos, sin, positions) -> y {
  y = RotaryEmbedding<interleaved=0>(x, cos, sin, positions)
  where rank(x) == 4 && rank(cos) == 2 && rank(positions) == 2 && dim(cos, -1) > 0
} => mojo.RotaryEmbedding(x, Unsqueeze(Gather(cos, positions; axis=0); axes=[1]), Unsqueeze(Gather(sin, positions; axis=0); axes=[1]); interleaved=0, rotary_dim=2 * dim(cos, -1), rotated_side="first", output_layout="halves")

pattern RotaryEmbedding(x, cos, sin) -> y {
  y = RotaryEmbedding<interleaved=0>(x, cos, sin)
  where rank(x) == 4 && rank(cos) == 3 && dim(cos, -1) > 0
} => mojo.RotaryEmbedding(x, Unsqueeze(cos; axes=[1]), Unsqueeze(sin; axes=[1]); interleaved=0, rotary_dim=2 * dim(cos, -1), rotated_side="first", output_layout="halves")

pattern RotaryEmbedding(x, cos, sin, positions) -> y {
  y = RotaryEmbedding<interleaved=1>(x, cos, sin, positions)
  where rank(x) == 4 && rank(cos) == 2 && rank(positions) == 2 && dim(cos, -1) > 0
} => mojo.RotaryEmbedding(x, Unsqueeze(Gather(cos, positions; axis=0); axes=[1]), Unsqueeze(Gather(sin, positions; axis=0); axes=[1]); interleaved=1, rotary_dim=2 * dim(cos, -1), rotated_side="first", output_layout="interleaved")

pattern RotaryEmbedding(x, cos, sin) -> y {
  y = RotaryEmbedding<interleaved=1>(x, cos, sin)
  where rank(x) == 4 && rank(cos) == 3 && dim(cos, -1) > 0
} => mojo.RotaryEmbedding(x, Unsqueeze(cos; axes=[1]), Unsqueeze(sin; axes=[1]); interleaved=1, rotary_dim=2 * dim(cos, -1), rotated_side="first", output_layout="interleaved")
