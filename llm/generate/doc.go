// Package generate generates text with language models in onnxruntime: decoders, original or patched.
//
// How a model is fed is found from its graph (package onnx/roles and Check): which input holds the ids, masks,
// positions and lengths, and which pairs of input and output are a cache. Pasts and presents are paired by what their
// names have in common (past_key_values.0.key and present.0.key, input.past_key_values.layers.0.keys and
// output.past_key_values.layers.0.keys, past_k0 and present_k0, …), else by their order, types and shapes; which axes
// are the batch's and the tokens' is told from symbolic dimensions, or from the Concat that joins past and new tokens.
// States that do not grow begin with zeros. A model without a cache is fed the whole text for each token.
//
// The cache goes from a step to the next as onnxruntime's own values, bound to the inputs where they lie (ort.Binding),
// on a device too; only logits come to the host. A past is freed when the next step has read it.
//
// Prompts of different lengths are computed together with padding: behind them where a model without a cache returns
// logits for every position, else before them, with zeros in the mask and positions counted from the first token. Not
// every model can do that: one without a mask, with com.microsoft.GroupQueryAttention, or with a vector for each
// position of the cache cannot. So it is tried, once for a generator, on a few tokens of the prompts with and without
// padding; where the logits differ by more than roundings, prompts of one length are computed together, and the groups
// one after another. Either way each prompt's tokens are those that it gets alone, but for near ties that roundings
// decide.
package generate
