// Package match finds patterns of package notation in a graph. A View is a graph as patterns see it; what reads
// graphs in other ways, such as packages rotary, router and moe, asks it the same questions. An Attempt matches one
// pattern at one value, and NearMisses says why nodes that looked like a part of a pattern are none.
package match
