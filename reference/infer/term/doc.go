// Package term computes with the sizes that a model leaves open.
//
// A Number is a plain integer, or stands for an expression: a polynomial with integer coefficients, whose variables are
// open sizes, real constants, and results of operations that are no polynomial (a minimum, a comparison, a division
// with a remainder). Two Numbers are equal exactly when their expressions are, term by term. So what is proven here
// holds for all sizes, and what merely came out equal at a few sizes is not proven.
package term
