// Package probe runs parts of a graph on numbers of our choice. A Lab plans which nodes compute the wanted values, and
// evaluates them without roundings. A Runner is a Lab that does not compute products with weights: its caller chooses
// the results, so that what the nodes make of them shows where it comes from. A Runner does not decode weights either:
// they are tensors of the places of their elements.
package probe
