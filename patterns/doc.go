// Package patterns finds the subgraphs that fused ops stand for.
//
// A pattern is text: single assignments that read like a printed ONNX graph, conditions, and the op that takes the
// place of what matched.
//
//	pattern RMSNorm(x, scale) -> y {
//	  anchor ReduceMean
//	  xf = Cast?(x)
//	  n  = Mul(xf, Rsqrt(Add(ReduceMean<axes=[-1], keepdims=1>(Square(xf)), $epsilon)))
//	  y  = Mul(Cast(n), scale) as after | Cast?(Mul(n, Cast?(scale)))
//	  where rank(scale) == 1 && epsilon > 0
//	} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)
//
// Package notation has the grammar and says what it means, package match finds patterns in a graph, and packages
// rotary, router and moe find the blocks that have too many spellings to write down; package probe runs a part of a
// graph for moe.
//
// Routers of mixtures and their experts have no spelling to write down. They are patterns in Go (goforms.go):
// TopKRouter (topkrouter.go) and MoE (moe.go), of what packages router and moe read. They are tried before the
// textual ones. NormRotary (norm_rotary.go) joins matches of RMSNorm and RotaryEmbedding, which are its Parts: it is
// tried when all others are found. So is Attention (attention.go), of what package attention reads.
//
// A node of an anchor op that no match took is where somebody would ask why nothing was fused. For these, a Miss
// names the pattern that stands there but for one thing (or two), what it wanted in that place, and what it found
// (match.View.NearMisses).
package patterns
