// Package rotary reads rotary position embeddings. They have more spellings than a pattern can list, so it follows
// every channel of the last axis back through the ops that only move channels about (channels.go). What then remains of
// any spelling is, for each output channel, two products of a channel of x and one of a table, from which it reads
// which channels are pairs and in what order the results stand.
package rotary
