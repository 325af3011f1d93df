// Package prove compares two ways to compute the same values on hard inputs: without rounding, where only a different
// function differs, and in the graph's own types, in which a loss of precision shows.
//
// A Claim states that a graph computes the same before and after a change. Its Policy declares differences that prove
// nothing. A Prover evaluates both sides, and a Comparison compares them.
package prove
