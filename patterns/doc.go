// Package patterns finds the subgraphs that fused ops can replace.
//
// A pattern is text: single assignments that read like a printed ONNX graph, conditions, and the op that replaces a
// match.
//
//	pattern RMSNorm(x, scale) -> y {
//	  anchor ReduceMean
//	  xf = Cast?(x)
//	  n  = Mul(xf, Rsqrt(Add(ReduceMean<axes=[-1], keepdims=1>(Square(xf)), $epsilon)))
//	  y  = Mul(Cast(n), scale) as after | Cast?(Mul(n, Cast?(scale)))
//	  where rank(scale) == 1 && epsilon > 0
//	} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=after)
//
// Package notation defines the grammar and its meaning; package match finds patterns in a graph.
//
// Blocks with too many spellings to list are found by their function. A finder, such as those of packages attention,
// fit, moe and router, returns sites (package site): the op with its attributes, its operands by role, and the nodes
// that it replaces. For near misses it returns the reason. File search.go lists finders and texts in search order, and
// makes a Match of each site. NormRotary (norm_rotary.go) joins matches of RMSNorm and RotaryEmbedding, which become
// its Parts.
//
// If no match takes a node of an anchor op, users may ask why nothing was fused there. For such nodes, a Miss names the
// pattern that matches except for one or two differences, the expected operand and the one found
// (match.View.NearMisses).
package patterns
