// Package fit finds blocks by what they compute, where no pattern says how they are spelled.
//
// A region is what lies between a value and those that everything in it is computed from: its dataflow gives them. It
// is run by the built-in evaluator on numbers of our choice, and the attributes of an op are fitted to its answers. The
// op's formula, as the catalogue has it, is all that is known here of the block.
package fit
