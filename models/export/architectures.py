"""The architectures that the exporter knows: tiny configurations with random weights.

Every configuration keeps the features that shape the exported graph (grouped heads, norms on queries and keys, sliding
windows, experts, caches) and makes everything else small. Nothing is downloaded: the weights are drawn from a seeded
generator.
"""

from dataclasses import dataclass, field

import torch
import transformers

VOCABULARY = 160
LAYERS = 2
KV_HEADS = 2
HEAD_DIM = 16

_COMMON = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=KV_HEADS,
    max_position_embeddings=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_SMALL = dict(hidden_size=32, intermediate_size=48)
_SMALL_HEADS = dict(_SMALL, head_dim=HEAD_DIM)
_WINDOWED = dict(_SMALL_HEADS, sliding_window=8, query_pre_attn_scalar=HEAD_DIM)
_FEW_EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
_MAMBA = dict(_SMALL, head_dim=HEAD_DIM, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_chunk_size=8)
# DeepSeek's latent attention: 8 channels of a head are rotated, 16 are not.
_LATENT = dict(
    _SMALL,
    head_dim=8,
    num_key_value_heads=4,
    q_lora_rank=24,
    kv_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=16,
    v_head_dim=16,
)
# The first layer is dense, the second has experts and one that all tokens share.
_ROUTED = dict(
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    n_shared_experts=1,
    first_k_dense_replace=1,
    n_group=1,
    topk_group=1,
)
# No experts, and the smallest possible sizes: a cache is recorded with every case. PyTorch's eager attention agrees
# with its exports on rows that see no key.
_CACHED = _LATENT | _ROUTED | dict(
    hidden_size=16,
    intermediate_size=24,
    first_k_dense_replace=LAYERS,
    q_lora_rank=12,
    head_dim=4,
    qk_rope_head_dim=4,
    qk_nope_head_dim=8,
    v_head_dim=6,
    attn_implementation="eager",
)


@dataclass(frozen=True)
class Architecture:
    """Names of the two classes in transformers, and the differences from the common configuration."""

    config: str
    model: str
    overrides: dict = field(default_factory=dict)


ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", "LlamaForCausalLM"),
    "llamasmall": Architecture("LlamaConfig", "LlamaForCausalLM", _SMALL_HEADS),
    "mistral": Architecture("MistralConfig", "MistralForCausalLM", dict(sliding_window=8, head_dim=HEAD_DIM)),
    "qwen2": Architecture("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3Config", "Qwen3ForCausalLM", dict(head_dim=HEAD_DIM)),
    "gemma2": Architecture("Gemma2Config", "Gemma2ForCausalLM", _WINDOWED),
    "gemma3": Architecture(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        dict(_WINDOWED, layer_types=["sliding_attention", "full_attention"]),
    ),
    "cohere": Architecture("CohereConfig", "CohereForCausalLM", dict(_SMALL, use_qk_norm=False)),
    "mixtral": Architecture(
        "MixtralConfig",
        "MixtralForCausalLM",
        _SMALL_HEADS | _FEW_EXPERTS | dict(intermediate_size=64),  # whole blocks of 32
    ),
    "qwen3moe": Architecture(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        dict(
            _SMALL_HEADS,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            decoder_sparse_step=1,
            norm_topk_prob=True,
        ),
    ),
    "qwen2moe": Architecture("Qwen2MoeConfig", "Qwen2MoeForCausalLM", dict(num_experts=4, num_experts_per_tok=2)),
    "gptoss": Architecture(
        "GptOssConfig",
        "GptOssForCausalLM",
        _SMALL_HEADS
        | _FEW_EXPERTS
        | dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"]),
    ),
    "deepseek2": Architecture(
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        _LATENT | _ROUTED | dict(q_lora_rank=None, first_k_dense_replace=LAYERS),
    ),
    "deepseek3": Architecture("DeepseekV3Config", "DeepseekV3ForCausalLM", _LATENT | _ROUTED),
    # With a cache of latents, as transformers keeps it now, and of the heads' keys and values, as it did before.
    "deepseek3latent": Architecture("DeepseekV3Config", "DeepseekV3ForCausalLM", _CACHED),
    "deepseek3naive": Architecture("DeepseekV3Config", "DeepseekV3ForCausalLM", _CACHED),
    "bamba": Architecture("BambaConfig", "BambaForCausalLM", _MAMBA | dict(attn_layer_indices=[1])),
    "falconh1": Architecture(
        "FalconH1Config",
        "FalconH1ForCausalLM",
        _MAMBA | dict(mamba_d_ssm=64, mamba_n_groups=2, mamba_rms_norm=True, mamba_chunk_size=16),
    ),
}

LATENT = "deepseek3latent", "deepseek3naive"  # the contents of their caches follow from latents
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def build(name, dtype, experts=None, seed=20261121):
    """Builds the model of an architecture with random weights, in evaluation mode and in the given type."""
    architecture = ARCHITECTURES[name]
    config = getattr(transformers, architecture.config)(**{**_COMMON, **architecture.overrides})
    config.use_cache = False
    torch.manual_seed(seed)  # of the model's random values
    model = getattr(transformers, architecture.model)(config)
    if experts:
        model.set_experts_implementation(experts)
    randomise(model, seed)
    if name == "deepseek3naive":
        for layer in model.model.layers:
            keep_heads(layer.self_attn)
    return model.to(DTYPES[dtype]).eval()


def keep_heads(attention):
    """Makes latent attention cache keys and values by heads, made of the latents, instead of the latents."""
    forward, expand = attention.forward, attention.expand_kv

    def keeping(*args, past_key_values=None, **kwargs):
        def update(*latents):
            heads = expand(*latents)
            return heads if past_key_values is None else past_key_values.update(*heads, attention.layer_idx)

        attention.expand_kv = update
        return forward(*args, past_key_values=None, **kwargs)

    attention.forward = keeping


def block(name, experts, hidden, intermediate):
    """The routed experts of the last layer of an even smaller model, as a separate module."""
    architecture = ARCHITECTURES[name]
    sizes = dict(hidden_size=hidden, intermediate_size=intermediate, moe_intermediate_size=intermediate)
    few = dict(num_experts=4, num_local_experts=4, shared_expert_intermediate_size=8)
    config = getattr(transformers, architecture.config)(**{**_COMMON, **architecture.overrides, **few, **sizes})
    model = getattr(transformers, architecture.model)(config)
    model.set_experts_implementation(experts)
    return model.model.layers[-1].mlp


@torch.no_grad()
def randomise(model, seed):
    """Draws every weight anew."""
    # A norm whose scale is all ones, or a bias of zeros, would hide a wrong rewrite: nothing keeps its neutral value.
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() < 2:
            parameter.add_(0.25 * noise)
        elif "embed" in name:
            parameter.copy_(0.5 * noise)
        else:
            parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("correction_bias"):  # of a router: learnt, though no parameter
            buffer.add_(0.25 * torch.randn(buffer.shape, generator=generator))
