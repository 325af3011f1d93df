// Package infer finds the element type, the rank, the shape and, where small, the elements of every value of a model.
//
// Shapes are concrete: the symbolic dimensions of the model's inputs are given numbers, and everything is propagated
// with those numbers. That is done in a few worlds with different numbers, so that what depends on an input can be told
// from what is fixed. Arithmetic on shapes (Shape, Gather, Concat, … up to Reshape) is then plain evaluation, by
// package reference.
//
// What is the same in all worlds need not be the same at other sizes: a condition such as sequence > 2048 may be false
// in each of them. In one more world, of proofs, sizes are therefore expressions (package term). Facts are called
// constant or equal only if they are proven there.
//
// The names of dimensions do not say all that holds between them: the length of an attention mask may be the sum of two
// other lengths under a name of its own. When an op meets two dimensions that ought to be equal and are not, the
// numbers are changed so that they are (see solve.go), and the analysis starts again.
//
// No weights are read: only constants of at most MaxElements elements.
package infer
