package llamacpp

import (
	"testing"
)

// TestGGUFName checks names that files of these architectures are known to contain.
func TestGGUFName(t *testing.T) {
	for _, c := range []struct{ arch, parameter, want string }{
		{"llama", "model.layers.7.self_attn.q_proj.weight", "blk.7.attn_q.weight"},
		{"llama", "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
		{"gemma2", "model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight"},
		{"gemma3", "model.layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight"},
		{"gemma3", "model.layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight"},
		{"llama", "model.norm.weight", "output_norm.weight"},
		{"llama", "lm_head.weight", "output.weight"},
		{"qwen2", "model.layers.1.self_attn.k_proj.bias", "blk.1.attn_k.bias"},
		{"qwen3", "model.layers.1.self_attn.q_norm.weight", "blk.1.attn_q_norm.weight"},
		{"qwen2moe", "model.layers.1.mlp.shared_expert.gate_proj.weight", "blk.1.ffn_gate_shexp.weight"},
		{"qwen2moe", "model.layers.1.mlp.shared_expert_gate.weight", "blk.1.ffn_gate_inp_shexp.weight"},
		{"qwen3moe", "model.layers.1.mlp.gate.weight", "blk.1.ffn_gate_inp.weight"},
		{"qwen3moe", "model.layers.1.mlp.experts.down_proj", "blk.1.ffn_down_exps.weight"},
		{"llama", "model.layers.1.block_sparse_moe.experts.w3.weight", "blk.1.ffn_up_exps.weight"},
		{"phi3", "model.layers.1.self_attn.qkv_proj.weight", "blk.1.attn_qkv.weight"},
		{"phi3", "model.layers.1.mlp.gate_up_proj.weight", "blk.1.ffn_up.weight"},
		{"phi2", "model.layers.1.self_attn.dense.bias", "blk.1.attn_output.bias"},
		{"gpt2", "transformer.h.1.attn.c_attn.weight", "blk.1.attn_qkv.weight"},
		{"gpt2", "transformer.wpe.weight", "position_embd.weight"},
		{"gptneox", "gpt_neox.layers.1.mlp.dense_h_to_4h.weight", "blk.1.ffn_up.weight"},
	} {
		if got, _ := TensorName(c.arch, c.parameter); got != c.want {
			t.Errorf("%s %s: %q, not %q", c.arch, c.parameter, got, c.want)
		}
	}
	if got, ok := TensorName("llama", "model.layers.0.nothing.weight"); ok {
		t.Errorf("a name for nothing: %s", got)
	}
}
