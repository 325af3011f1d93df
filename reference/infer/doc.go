// Package infer finds the element type, the rank, the shape and, if small, the elements of every value of a model.
//
// Shapes are concrete: the symbolic dimensions of the model's inputs get numbers, which are propagated. This happens in
// a few worlds with different numbers, to separate facts that depend on an input from fixed ones. Arithmetic on shapes
// (Shape, Gather, Concat, … up to Reshape) is then plain evaluation by package reference.
//
// A fact that is the same in all worlds may differ at other sizes: a condition such as sequence > 2048 may be false in
// each of them. In one more world, the proof world, sizes are therefore expressions (package term). Facts are only
// called constant or equal if they are proven there.
//
// The names of dimensions do not express all relations between them: the length of an attention mask may be the sum of
// two other lengths under its own name. If an op meets two dimensions that should be equal but are not, the numbers are
// changed to make them equal (see solve.go), and the analysis restarts.
//
// No weights are read, only constants of at most MaxElements elements.
package infer
