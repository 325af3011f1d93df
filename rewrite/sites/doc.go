// Package sites checks one match: whether the op that would replace the matched nodes computes the same results.
//
// Site.Cut finds the nodes by following the match's outputs back to its inputs, whatever nodes the match names.
// Checker.Check claims that they and the replacement agree on hard inputs, without rounding and with the graph's types
// (package prove). Equal sites are checked once. Mixtures of experts are also tried on hard routings, and attention on
// paddings. A kernel or a runtime, if available, runs on the same inputs.
package sites
