// Package probe runs parts of a graph on chosen numbers. A Lab plans which nodes compute the wanted values, and
// evaluates them without roundings. A Runner is a Lab that does not compute products with weights. Instead its caller
// chooses their results, so that the final result shows where each part comes from. A Runner does not decode weights
// either: they are tensors of the places of their elements.
//
// A Runner is not a second evaluator: package reference runs all other nodes. File product.go reads from a product's
// equation which axes of a weight are summed and which are the result's, which evaluation would not show. MatMul and
// Gemm are first written as equations, so that one reader suffices.
package probe
