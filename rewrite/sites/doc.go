// Package sites checks one place where a pattern matched: whether the op that would replace the matched nodes computes
// what they compute.
//
// The nodes are found by following the match's outputs back to its inputs (Site.Cut), whatever nodes the match names.
// Checker.Check claims that they and the replacement agree on hard inputs, without roundings and with the graph's
// types (package prove). Equal sites are checked once. Mixtures of experts are also tried on hard routings, and
// attention on paddings. Where a kernel or a runtime is at hand, it runs on the same inputs.
package sites
