// Package probe runs a part of a graph on numbers of our choice. Products with weights are not computed: who runs
// the nodes says what they give, so that the result tells where it comes from. Weights are not decoded either: they
// are tensors of the places of their elements, so that what nodes make of them says where it comes from. A Lab runs
// parts of which all is computed.
package probe
