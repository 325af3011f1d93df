// Package generate generates text with decoder language models in onnxruntime, original or patched.
//
// The package finds out from the graph how to feed a model (package onnx/roles and Check): which inputs hold the ids,
// masks, positions and lengths, and which pairs of input and output are a cache. It pairs pasts with presents by the
// common parts of their names (past_key_values.0.key and present.0.key, input.past_key_values.layers.0.keys and
// output.past_key_values.layers.0.keys, past_k0 and present_k0, …), else by their order, types and shapes. It finds the
// batch axis and the token axis by symbolic dimensions, or by the Concat that joins past and new tokens. States of
// fixed size start as zeros. A model without a cache is fed the whole text for each token.
//
// A model of apply --cache paged keeps its cache in blocks of pools (package llm/paged). Its sequences run together
// without padding, prompts in pieces, and a common start of 16 or more tokens is computed once.
//
// The cache passes from step to step as onnxruntime values that stay where they are (ort.Binding), on a device too.
// Only logits come to the host. A past is freed when the next step has read it.
//
// Prompts of different lengths are computed together with padding. The padding goes after the prompts if a model
// without a cache returns logits for every position. Otherwise it goes before them, with zeros in the mask and
// positions counted from the first token. Some models do not support that: those without a mask, those with
// com.microsoft.GroupQueryAttention, those with a vector for each position of the cache, and those with states that do
// not mask it. So each generator tries it once, on a few tokens of the prompts with and without padding. If the logits
// differ by more than rounding, only prompts of the same length are computed together, one group after another. Either
// way each prompt gets the tokens that it gets by itself, except at near ties that rounding decides.
package generate
