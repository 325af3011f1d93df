// Package rotary reads rotary position embeddings. They have more spellings than a pattern can list, so it follows
// every channel of the last axis back through the ops that only move channels about (channels.go). What then remains of
// any spelling is, for each output channel, two products of a channel of x and one of a table, from which it reads
// which channels are pairs and in what order the results stand.
//
// Channels are moved by the evaluator of package reference, which runs a node on their numbers: no op is written again
// here. File channels_ops.go says only along which axes a node moves elements and which operands it negates: the tables
// of package onnx say of a whole op that it moves elements, and not for which of its attributes rows stay together.
package rotary
