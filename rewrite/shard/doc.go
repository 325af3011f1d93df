// Package shard divides a patched model over ranks, one process each.
//
// A block is a part of the graph whose values the ranks hold in parts: from products whose outputs are divided, such as
// the queries of some heads, to products that sum over what is divided, whose results AllReduce adds up. Blocks are
// found by the meaning of each op (rules.go, fused.go), and all ranks of each block are evaluated together and compared
// with the whole before it is accepted (proof.go).
//
// The notation of the field: a product that is divided by outputs is column-parallel, one that is divided by inputs
// row-parallel (Shoeybi et al., Megatron-LM, 2019).
package shard
