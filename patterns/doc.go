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
// Package notation has the grammar and says what it means, package match finds patterns in a graph.
//
// Blocks that have too many spellings to write down are found by what their nodes compute. A finder, such as those of
// packages attention, fit, moe and router, returns sites (package site): the op with its attributes, its operands by
// role, the nodes that it replaces, and for what comes near the reason why it is none. File search.go lists finders and
// text in the order in which they look, and makes a Match of each site. NormRotary (norm_rotary.go) joins matches of
// RMSNorm and RotaryEmbedding, which are its Parts.
//
// A node of an anchor op that no match took is where somebody would ask why nothing was fused. For these, a Miss
// names the pattern that stands there but for one thing (or two), what it wanted in that place, and what it found
// (match.View.NearMisses).
package patterns
