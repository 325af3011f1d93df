// Package moe finds the experts of a mixture after a router, in whatever form they are written. Regions finds the part
// of the graph that tokens pass through between the choice and the weighted sum. Behind runs it with package probe, to
// find the function of each expert and the places of its weights.
package moe
