// Package formula reads an element of a tensor as a formula of its place, of the sizes that a model leaves open, and of
// the elements of one input, such as a mask. With formulas, a graph's function is proven for all sizes; runs at some
// sizes only suggest it.
//
// A Reader follows an element back through the nodes that compute it. Nodes that move elements change the place, and
// the others become an Expr. A Prover then evaluates formulas in all cases. Each comparison of sums of integer
// variables makes two cases, unless earlier comparisons decide it. All other values are numbers or sums. An operation
// that does not compute or compare sums, such as the logarithm of a length, ends a proof with an *UnknownError, which
// names the node.
package formula
