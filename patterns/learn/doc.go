// Package learn writes patterns for blocks that were found without one: those that package fit finds by running regions
// of a graph. A pattern describes the nodes of the region, and leaves open numbers that may differ in another model:
// sizes, and numbers of the op that are constants in the region.
//
// A pattern is written from one match. The caller (package rewrite) checks that it finds the match again, and that its
// replacement is right.
package learn
