"""Asks openai_api.py what clients of OpenAI's API ask, with a model that counts. Needs starlette and jinja2, no Ray."""

import asyncio
import json
import pathlib
import tempfile
import types
import unittest

from openai_api import API, Stops, read_template

END = 0  # the token that ends a text


class Ingress:
    """Its tokens are the characters behind the prompt's last one; z is the last before END."""

    room, stop, samples = 100, [END], False
    tokenizer = types.SimpleNamespace(encode=lambda text, **_: types.SimpleNamespace(ids=[ord(c) for c in text]))

    def __init__(self, breaks=False):
        self.breaks, self.closed = breaks, 0

    async def read(self, http):
        return http.request

    def text_stream(self, _):
        return lambda token: {"text": chr(token)}

    async def go_on(self, ids, max_tokens, stop, tokens, sampling):
        self.sampling = sampling
        try:
            while len(tokens) < max_tokens and tokens[-1:] != [END]:
                if self.breaks:
                    raise RuntimeError("no replica")
                last = (ids + tokens)[-1]
                tokens.append(END if last == ord("z") else last + 1)
                yield tokens[-1]
        finally:
            self.closed += 1


def ask(path, request=None, method="POST", ingress=None, template=None):
    ingress = ingress or Ingress()
    http = types.SimpleNamespace(url=types.SimpleNamespace(path=path), method=method, request=request)

    async def answer():
        response = await API(ingress, "counter", template).answer(http)
        if not hasattr(response, "body_iterator"):
            return response.status_code, json.loads(response.body)
        events = [part async for part in response.body_iterator]
        return response.status_code, [e[len("data: "):-2] for e in events]

    return asyncio.run(answer())


class CompletionsTest(unittest.TestCase):
    def complete(self, **request):
        status, answer = ask("/v1/completions", request)
        self.assertEqual(status, 200, answer)
        [choice] = answer["choices"]
        return choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]

    def test_ends(self):
        self.assertEqual(self.complete(prompt="xa", max_tokens=3), ("bcd", "length", 3))
        self.assertEqual(self.complete(prompt="a"), ("bcdefghijklmnopq", "length", 16))
        self.assertEqual(self.complete(prompt="w", max_tokens=9), ("xyz", "stop", 4))
        self.assertEqual(self.complete(prompt=[97], stop="f"), ("bcde", "stop", 5))
        self.assertEqual(self.complete(prompt=["a"], stop=["hi", "fgh"]), ("bcde", "stop", 7))
        self.assertEqual(self.complete(prompt="a", stop="cx", max_tokens=2), ("bc", "length", 2))  # "c" was held back

    def test_stop_ends_decoding(self):
        ingress = Ingress()
        ask("/v1/completions", {"prompt": "a", "stop": "c"}, ingress=ingress)
        self.assertEqual(ingress.closed, 1)

    def test_stream(self):
        status, events = ask("/v1/completions", {"model": "counter", "prompt": "x", "stream": True,
                                                 "stream_options": {"include_usage": True}, "temperature": 0})
        self.assertEqual((status, events[-1]), (200, "[DONE]"))
        chunks = [json.loads(e) for e in events[:-1]]
        self.assertEqual({c["object"] for c in chunks}, {"text_completion"})
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks[:-1]), "yz")
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks[:-1]], [None, None, "stop"])
        self.assertEqual(chunks[-1]["usage"], {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4})

    def test_broken(self):
        status, answer = ask("/v1/completions", {"prompt": "a"}, ingress=Ingress(breaks=True))
        self.assertEqual((status, answer["error"]["type"]), (500, "server_error"))
        _, events = ask("/v1/completions", {"prompt": "a", "stream": True}, ingress=Ingress(breaks=True))
        self.assertEqual(json.loads(events[-1])["error"]["message"], "RuntimeError: no replica")

    def test_refused(self):
        for request, status, param in [
            ([], 400, None), ({}, 400, "prompt"), ({"prompt": ["a", "b"]}, 400, "prompt"),
            ({"prompt": [-1]}, 400, "prompt"), ({"prompt": ""}, 400, None), ({"prompt": "a" * 100}, 400, None),
            ({"prompt": "a", "temperature": 0.7}, 400, "temperature"), ({"prompt": "a", "n": 2}, 400, "n"),
            ({"prompt": "a", "logprobs": 5}, 400, "logprobs"), ({"prompt": "a", "stop": [1]}, 400, "stop"),
            ({"prompt": "a", "stop": ["a"] * 5}, 400, "stop"), ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
            ({"prompt": "a", "max_tokens": True}, 400, "max_tokens"), ({"prompt": "a", "model": "b"}, 404, "model"),
        ]:
            with self.subTest(request):
                got, answer = ask("/v1/completions", request)
                self.assertEqual((got, answer["error"]["param"]), (status, param))
        self.assertEqual(ask("/v1/completions", method="GET")[0], 405)
        self.assertEqual(ask("/v1/embeddings", {})[0], 404)

    def test_sampling(self):
        """Options and seeds reach the model; a request without them is greedy."""
        ingress = Ingress()
        ingress.samples = True
        for request, want in [
            ({}, None), ({"temperature": 0, "top_p": 0.5, "seed": 3, "repetition_penalty": 1}, None),
            ({"temperature": 0.5, "top_k": 7, "top_p": 1, "seed": 3}, ([0.5, 7, 1, 0, 0, 0, 0], 3)),
            ({"frequency_penalty": -2, "presence_penalty": 0.5, "min_p": 0.25, "seed": -1},
             ([0, 0, 0, 0.25, 0, -2, 0.5], 2**64 - 1)),
        ]:
            status, answer = ask("/v1/completions", {"prompt": "a", **request}, ingress=ingress)
            self.assertEqual((status, ingress.sampling), (200, want), answer)
        for request in ({"temperature": -1}, {"temperature": float("nan")}, {"top_k": "5"}, {"top_p": 1.5},
                        {"presence_penalty": True}, {"temperature": 1, "seed": 0.5}):
            status, answer = ask("/v1/completions", {"prompt": "a", **request}, ingress=ingress)
            self.assertEqual((status, answer["error"]["param"]), (400, list(request)[-1]))
        seeds = [ask("/v1/completions", {"prompt": "a", "temperature": 1}, ingress=ingress) and ingress.sampling[1]
                 for _ in range(2)]
        self.assertNotEqual(*seeds)

    def test_models(self):
        status, answer = ask("/v1/models", method="GET")
        self.assertEqual((status, answer["data"][0]["id"]), (200, "counter"))


class ChatTest(unittest.TestCase):
    def template(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (pathlib.Path(folder) / name.replace("__", ".")).write_text(text)
            return read_template(folder)

    def test_template(self):
        self.assertIsNone(self.template(tokenizer_config__json="{}"))
        source = "{% for m in messages %}{{ eos_token }}{{ m['content'] }}{% endfor %}"
        config = {"chat_template": [{"name": "tools", "template": "x"}, {"name": "default", "template": source}],
                  "eos_token": {"content": "|"}}
        self.assertEqual(self.template(tokenizer_config__json=json.dumps(config))([{"content": "a"}]), "|a")
        template = self.template(chat_template__jinja="{{ messages[-1]['content'] }}",
                                 tokenizer_config__json='{"chat_template": "y"}')
        self.assertEqual(template([{"content": "b"}]), "b")

    def test_chat(self):
        template = self.template(chat_template__jinja="{% if messages[0]['role'] == 'tool' %}"
                                 "{{ raise_exception('no tools') }}{% endif %}{{ messages[-1]['content'] }}")
        parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
        status, answer = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]},
                             template=template)
        self.assertEqual(status, 200)
        self.assertEqual(answer["choices"][0]["message"], {"role": "assistant", "content": "z"})
        _, events = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "y"}], "stream": True},
                        template=template)
        self.assertEqual([json.loads(e)["choices"][0]["delta"] for e in events[:-1]],
                         [{"role": "assistant", "content": "z"}, {"content": ""}])
        for messages in (None, [], ["a"], [{"role": "user", "content": [{"type": "image_url"}]}],
                         [{"role": "tool", "content": "a"}], [{"content": "a"}]):
            with self.subTest(messages):
                status, answer = ask("/v1/chat/completions", {"messages": messages}, template=template)
                self.assertEqual((status, answer["error"]["param"]), (400, "messages"))
        self.assertEqual(ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})[0], 400)


class StopsTest(unittest.TestCase):
    def test_pieces(self):
        stops = Stops(["<end>", "e!"])
        self.assertEqual([stops.add(piece) for piece in ["a<", "en", "x<e", "nd", ">b"]], ["a", "", "<enx", "", ""])
        self.assertTrue(stops.over)


if __name__ == "__main__":
    unittest.main()
