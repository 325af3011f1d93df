// Package convert changes a model in memory. Opset brings it to a newer opset of the standard, Shapes and Dims fix the
// dimensions of its inputs: it computes what it did. Precision computes it in another float type, and LastLogits
// computes the logits of a language model for the last position alone.
//
// What an op's versions differ in is known for every op of the standard from opset 11 on. Most differ in the types that
// they take and in their text, and their nodes stay as they are. The others have a step each: an attribute that became
// an input, a name that changed, a default that did. Everything is checked before anything is changed, so that a model
// that cannot be converted stays as it was.
//
// With the dimensions of the inputs fixed, the arithmetic on shapes has results, found by reference/infer: these become
// initializers, and every value is declared with its shape, so that a compiler which takes no symbolic dimensions takes
// the model. Dynamic lists the values whose shape depends on data.
package convert
