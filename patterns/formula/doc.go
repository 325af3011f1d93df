// Package formula reads an element of a tensor as a formula of the place where it is, of the sizes that a model leaves
// open, and of the elements of one input, such as a mask. What a graph computes for every size is proved in this way,
// where runs at some sizes only suggest it.
//
// A Reader follows an element back through the nodes that compute it: those that move elements change the place, and
// the others become an Expr. A Prover then evaluates formulas in all cases. Each comparison of sums of integer
// variables makes two cases, unless the comparisons before it decide this one. Everything in between is a number or a
// sum. An operation that neither is nor compares sums, such as the logarithm of a length, ends a proof: that is an
// *UnknownError, which names the node.
package formula
