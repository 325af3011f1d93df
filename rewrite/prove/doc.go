// Package prove compares two ways to compute the same values: on numbers that are hard for one of them, without
// rounding, where only a different function differs, and in the graph's own types, where a loss of precision shows.
//
// A Claim says that a graph computes the same before and after a change; its Policy, which differences say nothing. A
// Prover evaluates both sides, and a Comparison compares them.
package prove
