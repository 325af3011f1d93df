// Package trace looks at the values inside of models while they run.
//
// Align finds which values of two models are the same, Blocks says which part of a language model each node belongs to
// (embedding, layer 3: attention, …), and an Execution runs a model piece by piece, so that each value can be looked
// at, or replaced, and then dropped. Compare puts them together: two models run side by side on the same inputs, and
// every value that both have is compared.
//
// The bodies of branches and loops that both models have are compared as models of their own. What runs the pieces,
// onnxruntime or the built-in evaluator, is the caller's choice.
package trace
