"""Encoders of images and sounds, and decoders that attend to them, with as many tokens as the real ones have.

Everything else is tiny: one channel of color, a hidden size of 16. Images and sounds are blocks of few levels, so that
the recorded cases compress well. The outputs come from a head, because outputs for every token would take much space.
"""

from dataclasses import dataclass

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

import architectures
import values

VOCABULARY = 160
SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
IMAGE = dict(SIZES, num_channels=1)


class Wrapped(torch.nn.Module):
    """A model of which some outputs count."""

    def __init__(self, model, outputs):
        super().__init__()
        self.model, self.outputs = model, outputs

    def run(self, **inputs):
        out = self.model(**inputs)
        return tuple(getattr(out, name) for name in self.outputs)


class OfImages(Wrapped):
    def forward(self, pixel_values):
        return self.run(pixel_values=pixel_values)


class OfSounds(Wrapped):
    def forward(self, input_features):
        return self.run(input_features=input_features)


class OfTextAndImages(Wrapped):
    def forward(self, input_ids, pixel_values):
        return self.run(input_ids=input_ids, pixel_values=pixel_values)


class WhisperDecoder(Wrapped):
    """logits of a whole prompt, for the encoder's output."""

    def forward(self, encoder_hidden_states, decoder_input_ids):
        encoded = BaseModelOutput(last_hidden_state=encoder_hidden_states)
        return self.run(encoder_outputs=encoded, decoder_input_ids=decoder_input_ids, use_cache=False)


@dataclass(frozen=True)
class Encoder:
    """A model, its inputs (a function of batch and case for each), its outputs, the open axes of inputs besides the
    batch, and how many blocks of attention there are."""

    build: object
    wrap: type
    inputs: dict
    outputs: list
    axes: dict
    attention: int


def blocks(height, width, side=4):
    """Makes images of blocks of so many by so many points of the same brightness, with one channel."""

    def make(batch, case):
        h, w = (height, width) if isinstance(height, int) else (height[case], width[case])
        generator = torch.Generator().manual_seed(7 + case)
        small = torch.randint(0, 16, (batch, 1, -(-h // side), -(-w // side)), generator=generator)
        image = small.repeat_interleave(side, 2).repeat_interleave(side, 3)[:, :, :h, :w]
        return image.float() / 8 - 1

    return make


def rows(make):
    """Leaves the axis of colors out."""
    return lambda batch, case: make(batch, case)[:, 0]


def ids(length):
    """Makes random tokens, so many or as many as the case says."""

    def make(batch, case):
        generator = torch.Generator().manual_seed(17 + case)
        return torch.randint(3, VOCABULARY, (batch, length if isinstance(length, int) else length[case]),
                             generator=generator)

    return make


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGE, num_labels=5))


def siglip():
    return transformers.SiglipForImageClassification(transformers.SiglipConfig(
        vision_config=dict(IMAGE, image_size=384, patch_size=14), text_config=dict(SIZES, vocab_size=VOCABULARY),
        num_labels=5))


def dinov3():
    return transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**IMAGE, num_register_tokens=4))


def clip():
    text = dict(SIZES, vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return transformers.CLIPModel(transformers.CLIPConfig(
        vision_config=dict(IMAGE, patch_size=14), text_config=text, projection_dim=8))


SOUND = 200  # rows of the encoder of a sound, 1,500 in published models


def whisper(kind, **other):
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=4, d_model=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
        max_source_positions=SOUND, max_target_positions=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, **other)
    return kind(config)


ENCODERS = {
    "vit": Encoder(vit, OfImages, dict(pixel_values=blocks(224, 224)), ["logits"], {}, 2),
    "siglip": Encoder(siglip, OfImages, dict(pixel_values=blocks(384, 384, side=8)), ["logits"], {}, 2),
    "dinov3": Encoder(
        dinov3,
        OfImages,
        dict(pixel_values=blocks((64, 48), (96, 80))),
        ["pooler_output"],
        dict(pixel_values={2: "height", 3: "width"}),
        2,
    ),
    "clip": Encoder(
        clip,
        OfTextAndImages,
        dict(input_ids=ids(77), pixel_values=blocks(224, 224)),
        ["text_embeds", "image_embeds"],
        {},
        4,
    ),
    "whisperencoder": Encoder(
        lambda: whisper(transformers.WhisperForAudioClassification, num_labels=5, classifier_proj_size=8),
        OfSounds,
        dict(input_features=rows(blocks(4, 2 * SOUND))),
        ["logits"],
        {},
        2,
    ),
    "whisperdecoder": Encoder(
        lambda: whisper(transformers.WhisperForConditionalGeneration),
        WhisperDecoder,
        dict(encoder_hidden_states=rows(blocks(1500, 16)), decoder_input_ids=ids((7, 5))),
        ["logits"],
        dict(decoder_input_ids={1: "sequence"}),
        4,
    ),
}


def make(name, dtype):
    """The module of an encoder, and its cases: two images or sounds at a time, and one."""
    encoder = ENCODERS[name]
    torch.manual_seed(20261128)
    model = encoder.build()
    architectures.randomise(model, seed=20261128)
    model = model.to(dtype).eval()
    module = encoder.wrap(model, encoder.outputs)
    cases = []
    for case, batch in enumerate((2, 1)):
        made = {k: f(batch, case) for k, f in encoder.inputs.items()}
        cases.append({k: v.to(dtype) if v.is_floating_point() else v for k, v in made.items()})
    return module.eval(), cases


def shorten(model):
    """Drops names of nodes, and shapes and names of values inside the graph: most of a file as small as this."""
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.name = ""
    values.number(model)
