// Package moe finds the experts of a mixture behind a router, in whatever form they are written: Regions looks for
// the part of the graph that tokens pass through between the choice and the weighted sum, and Behind has package
// probe run it, which tells what each expert computes and where its weights are.
package moe
