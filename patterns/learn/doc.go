// Package learn writes patterns for blocks that were found without one: those that package fit finds by running regions
// of a graph. The pattern says of the region what its nodes do, and leaves open what may be another number in another
// model: sizes, and the numbers of the op that stand in the region as constants.
//
// A pattern is written from one match. Whether it finds that again, and whether its replacement holds, is for the
// caller to see (package rewrite).
package learn
