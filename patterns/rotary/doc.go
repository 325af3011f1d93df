// Package rotary reads rotary position embeddings. They have more spellings than a pattern can list, so it follows
// every channel of the last axis back through the ops that only move channels (channels.go). Any spelling then comes
// down to two products for each output channel, of a channel of x and one of a table. From these it reads which
// channels are pairs, and the order of the results.
//
// The evaluator of package reference moves the channels: it runs a node on their numbers, so no op is implemented
// again. File channels_ops.go only tells along which axes a node moves elements and which operands it negates. The
// tables of package onnx tell that an op moves elements, but not for which attributes rows stay together.
package rotary
