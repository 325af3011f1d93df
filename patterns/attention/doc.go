// Package attention finds blocks of attention by what they compute: a product of two computed values, of whose rows
// something like a softmax is taken, and a product of that with a third one.
//
// No spelling of the steps between is known here. They are run, by the built-in evaluator, on scores, masks and lengths
// of our choice: what becomes of one score tells the scale and the cap, what becomes of equal ones tells who sees whom,
// and random queries, keys and values tell in which order their heads and rows stand.
package attention
