// Package convert changes a model in memory. Opset raises it to a newer opset of the standard, and Shapes and Dims fix
// the dimensions of its inputs; the results stay the same. Precision computes the model in another float type, and
// LastLogits makes a language model compute logits only for the last position.
//
// The package knows how the versions of every standard op from opset 11 on differ. Most versions differ only in
// accepted types and wording, and their nodes stay unchanged. Each other version has a step: an attribute that became
// an input, a renamed value, a changed default. Everything is checked before anything is changed, so a model that
// cannot be converted stays unchanged.
//
// Once the dimensions of the inputs are fixed, reference/infer evaluates the arithmetic on shapes. The results become
// initializers, and every value is declared with its shape, so that compilers without symbolic dimensions accept the
// model. Dynamic lists the values whose shape depends on data.
package convert
