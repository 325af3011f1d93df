// Package fit finds blocks by their function instead of by a pattern.
//
// A region is the nodes between a value and the values that they all are computed from, by dataflow. The built-in
// evaluator runs it on chosen numbers, and the attributes of an op are fitted to the answers. The package knows nothing
// of a block except the op's formula in the catalogue.
package fit
