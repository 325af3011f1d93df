"""Sends serve.py's ingress requests that are too large, malformed, slow or ask for too much. Needs no Ray."""

import asyncio
import gzip
import json
import pathlib
import sys
import tempfile
import types
import unittest


class Answer:
    def __init__(self, content, status_code=200, media_type=None):
        self.content, self.status_code = content, status_code


def stand_in(name, **attributes):
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


serve = stand_in("serve", deployment=lambda cls: cls)
stand_in("ray", serve=serve)
stand_in("ray.exceptions", RayError=type("RayError", (Exception,), {}), RayTaskError=type("RayTaskError", (), {}))
stand_in("starlette")
stand_in("starlette.requests", Request=object)
stand_in("starlette.responses", JSONResponse=Answer, StreamingResponse=Answer)
stand_in("decoder", Decoder=object)
stand_in("engine", Engine=object)
stand_in("ranks", Ranks=object, read_ranks=lambda _: 0)
stand_in("tokenizers", Tokenizer=types.SimpleNamespace(from_str=json.loads))
del sys.modules["serve"]
import serve as example  # noqa: E402


class Model:
    def options(self, **_):
        return self


class Http:
    def __init__(self, *parts, wait=0.0):
        self.parts, self.wait, self.read = parts, wait, 0
        self.url = types.SimpleNamespace(path="/")

    async def stream(self):
        for part in self.parts:
            await asyncio.sleep(self.wait)
            self.read += len(part)
            yield part


class LimitsTest(unittest.TestCase):
    def ask(self, *parts, wait=0.0):
        http = Http(*parts, wait=wait)
        answer = asyncio.run(example.Ingress(Model(), room=100)(http))
        if not isinstance(answer.content, dict):
            self.assertEqual(answer.status_code, 200)
        else:
            self.assertLess(len(json.dumps(answer.content)), 500)
        return answer.status_code, http.read

    def test_taken(self):
        self.assertEqual(self.ask(b'{"ids": [1, 2],', b' "max_tokens": 98, "tokens": [5]}')[0], 200)

    def test_large(self):
        status, read = self.ask(*[b"[" * 1000] * 10**6)
        self.assertEqual(status, 413)
        self.assertLess(read, 20_000)

    def test_slow(self):
        example.READ_SECONDS = 0.2
        self.addCleanup(setattr, example, "READ_SECONDS", 30)
        self.assertEqual(self.ask(*[b" "] * 1000, wait=0.05)[0], 408)

    def test_malformed(self):
        for text in (b"", b"{", b"[" * 9000, b"\xff", b"null", b"[]", b"1", b'{"ids": []}', b'{"ids": 5}',
                     b'{"prompt": "a"}', b'{"ids": [1.0]}', b'{"ids": [true]}', b'{"ids": [-1]}',
                     b'{"ids": [99999999999999999999]}',
                     b'{"ids": [1], "max_tokens": 0}', b'{"ids": [1], "max_tokens": 1e3}', b'{"ids": [1], "stop": 3}',
                     b'{"ids": [1], "max_tokens": NaN}', b'{"ids": ["' + b"x" * 5000 + b'"]}', b'{"ids": {"a": 1}}',
                     b'{"ids": [1], "max_tokens": 100}', b'{"ids": [1], "max_tokens": 2, "tokens": [1, 2, 3]}'):
            with self.subTest(text[:40]):
                self.assertEqual(self.ask(text)[0], 400)


class FolderTest(unittest.TestCase):
    def test_files(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            self.assertRaisesRegex(FileNotFoundError, "has neither", example.read_tokenizer, name)
            (folder / "tokenizer.json.gz").write_bytes(gzip.compress(b'"packed"'))
            self.assertEqual(example.read_tokenizer(name), ("packed", []))
            (folder / "genai_config.json").write_text('{"model": {"eos_token_id": [1, 2]}}')
            self.assertEqual(example.read_tokenizer(name), ("packed", [1, 2]))
            (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
            (folder / "tokenizer.json").write_text('"plain"')
            self.assertEqual(example.read_tokenizer(name), ("plain", [3]))


if __name__ == "__main__":
    unittest.main()
