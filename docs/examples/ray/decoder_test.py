"""Compares the Decoder's tokens for the models that it takes, and what it says of others. Needs no Ray.

usage: decoder_test.py MODEL TOKENIZER   (a decoder with a cache, such as models/llama-kv-dynamo-fp32.onnx; a folder)
"""

import pathlib
import sys
import tempfile
import unittest

import mojo_patch

from decoder import Decoder

MODEL, TOKENIZER = (pathlib.Path(name) for name in sys.argv[1:3])
PROMPTS = [[5, 9, 17, 3], [60], [7, 8, 9, 10, 11, 12, 13, 14, 15]]
NEW = 12


def decode(model, rows):
    """Returns the tokens behind each prompt. Each starts a step after the one before, and the first one ends first."""
    decoder = Decoder(str(model), rows, 32)
    tokens, places = [[] for _ in PROMPTS], []  # of each row, the prompt
    for i in range(len(PROMPTS)):
        if places:
            for place, token in zip(places, decoder.step()):
                tokens[place].append(token)
        tokens[i].append(decoder.start(PROMPTS[i]))
        places.append(i)
    while places:
        for place, token in zip(places, decoder.step()):
            tokens[place].append(token)
        for row in reversed(range(len(places))):
            if len(tokens[places[row]]) >= NEW:
                decoder.stop(row)
                places[row] = places[-1]
                places.pop()
    return tokens


class DecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.temp = pathlib.Path(temp.name)

    def patch(self, name, **options):
        path = self.temp / f"{name}.onnx"
        mojo_patch.apply(MODEL, path, last_logits=True, **options)
        return path

    def genai(self, model):
        folder = self.temp / f"{model.stem}-genai"
        mojo_patch.export_genai(model, folder, TOKENIZER)
        return folder / "model.onnx"

    def test_tokens(self):
        rows = self.patch("rows", cache="static", past_length="rows")
        one = self.patch("one", cache="static")
        want = decode(rows, len(PROMPTS))
        self.assertEqual([len(tokens) >= NEW for tokens in want], [True] * len(PROMPTS))
        self.assertGreater(len({tuple(tokens) for tokens in want}), 1)
        for model in (self.genai(rows), self.genai(one)):
            with self.subTest(model.parent.name):
                self.assertEqual(decode(model, len(PROMPTS)), want)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "has no input past_length: patch it with"):
            Decoder(str(self.patch("static", cache="static")), 2, 32)
        with self.assertRaisesRegex(ValueError, "has no cache in place: patch it with"):
            Decoder(str(self.genai(self.patch("growing"))), 2, 32)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
