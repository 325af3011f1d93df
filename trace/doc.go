// Package trace examines the values inside models while they run.
//
// Align finds the equal values of two models. Blocks assigns each node to a part of a language model (embedding, layer
// 3: attention, …). An Execution runs a model piece by piece, so that each value can be examined or replaced, and then
// dropped. A Comparer combines them: it runs two models side by side on the same inputs and compares every value that
// both have.
//
// The bodies of branches and loops that both models have are compared as separate models. The caller chooses what
// runs the pieces: onnxruntime or the built-in evaluator.
package trace
