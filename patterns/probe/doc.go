// Package probe runs parts of a graph on numbers of our choice. A Lab plans which nodes compute the wanted values, and
// evaluates them without roundings. A Runner is a Lab that does not compute products with weights: its caller chooses
// the results, so that what the nodes make of them shows where it comes from. A Runner does not decode weights either:
// they are tensors of the places of their elements.
//
// A Runner is no second evaluator: package reference runs every node but those products. File product.go reads from the
// equation of one which axes of a weight are summed over and which are the result's, as no evaluation of it tells, and
// MatMul and Gemm are written as equations first, so that there is one such reading.
package probe
