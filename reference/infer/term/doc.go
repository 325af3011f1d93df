// Package term computes with the open sizes of a model.
//
// A Number is a plain integer or represents an expression: a polynomial with integer coefficients. Its variables are
// open sizes, real constants, and results of operations that are not polynomials (a minimum, a comparison, a division
// with a remainder). Two Numbers are equal exactly if their expressions are, term by term. So a fact proven here holds
// for all sizes, while equality at a few sizes is not a proof.
package term
