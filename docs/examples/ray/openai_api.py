"""OpenAI's API in front of serve.py's ingress: /v1/models, /v1/completions and /v1/chat/completions, also as streams.

Decoding is greedy unless the model samples and the request has options for it. A request for anything else (several
choices, tools) gets an error, as do a text that does not fit and a model of another name. A client whose stream broke
asks again from the beginning.
"""

import json
import pathlib
import secrets
import time
import uuid
from dataclasses import dataclass

from starlette.responses import JSONResponse, StreamingResponse

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
# Parameters that would change the text, and the values at which they do not. Others are not read.
NEUTRAL = {"n": [1], "best_of": [1], "logit_bias": [{}], "logprobs": [False], "top_logprobs": [0], "echo": [False],
           "suffix": [""], "tools": [[]], "functions": [[]], "response_format": [{"type": "text"}]}

# The options of sampling, in the order of the op Sample, with their bounds. 0 turns each off.
SAMPLING = {"temperature": (0, 1e9), "top_k": (0, 2**22), "top_p": (0, 1), "min_p": (0, 1),
            "repetition_penalty": (0, 1e9), "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2)}


class Wrong(Exception):
    """A request that cannot be answered: why, the parameter, the status and OpenAI's code."""

    def __init__(self, why, param=None, status=400, code=None):
        super().__init__(why)
        self.param, self.status, self.code = param, status, code


def read_sampling(request, samples):
    """Returns the options of sampling and the seed of a request, or None for greedy decoding, or raises Wrong."""
    controls = []
    for name, (least, most) in SAMPLING.items():
        value = request.get(name) or 0
        if type(value) not in (int, float) or not least <= value <= most:
            raise Wrong(f"{name} is a number from {least} to {most:g}", name)
        controls.append(0.0 if (name, value) == ("repetition_penalty", 1) else float(value))
    seed = request.get("seed")
    if seed is not None and type(seed) is not int:
        raise Wrong("seed is a whole number", "seed")
    used = [name for name, value in zip(SAMPLING, controls) if value and name not in ("top_k", "top_p", "min_p")]
    if not used:
        return None
    if not samples:
        raise Wrong(f"{used[0]}: decoding is greedy; leave {used[0]} out", used[0])
    return controls, (secrets.randbits(64) if seed is None else seed % 2**64)


@dataclass
class Job:
    ids: list
    max_tokens: int
    stops: list
    stream: bool
    usage: bool  # at the end of a stream
    sampling: tuple  # of read_sampling


class Stops:
    """Ends a text before the first of some strings, and holds back what may be the beginning of one."""

    def __init__(self, stops):
        self.stops, self.held, self.over = stops, "", False

    def add(self, text):
        """Returns what is certain after text."""
        text = self.held + text
        begins = [text.find(stop) for stop in self.stops if stop in text]
        if begins:
            self.held, self.over = "", True
            return text[:min(begins)]
        held = max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self.held = text[len(text) - held:]
        return text[:len(text) - held]


def read_template(folder):
    """Returns a function from messages to a prompt, by the chat template of a tokenizer's folder, or None."""
    folder = pathlib.Path(folder)
    config = folder / "tokenizer_config.json"
    config = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    plain = folder / "chat_template.jinja"
    source = plain.read_text(encoding="utf-8") if plain.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((x["template"] for x in source if x["name"] == "default"), None)
    if not source:
        return None
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(why):
        raise Wrong(f"the chat template: {why}", "messages")

    marks = {name: value["content"] if isinstance(value, dict) else value
             for name, value in config.items() if name.endswith("_token") and value}
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=["jinja2.ext.loopcontrols"])
    environment.globals.update(raise_exception=refuse, strftime_now=time.strftime)
    environment.filters["tojson"] = lambda x, **options: json.dumps(x, ensure_ascii=False, **options)
    template = environment.from_string(source)
    return lambda messages: template.render(messages=messages, add_generation_prompt=True, **marks)


class API:
    """Answers requests with an ingress, whose model has a name."""

    def __init__(self, ingress, name, template=None):
        self.ingress, self.name, self.template = ingress, name, template

    async def answer(self, http):
        path = http.url.path.rstrip("/")
        try:
            if path == "/v1/models":
                return JSONResponse({"object": "list", "data": [
                    {"id": self.name, "object": "model", "created": 0, "owned_by": "mojo-patch"}]})
            if path not in (COMPLETIONS, CHAT):
                raise Wrong(f"there is no {path}", status=404)
            if http.method != "POST":
                raise Wrong(f"{path} takes POST requests", status=405)
            chat = path == CHAT
            job = self.read(chat, await self.ingress.read(http))
        except Wrong as e:
            return failure(e.args[0], e.status, e.param, e.code)
        about = {"id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}", "created": int(time.time()),
                 "model": self.name}
        if job.stream:
            return StreamingResponse(self.events(chat, job, about), media_type="text/event-stream")
        pieces, tokens = [], []
        try:
            async for piece in self.pieces(job, tokens):
                pieces.append(piece)
        except Exception as e:
            return failure(f"{type(e).__name__}: {str(e)[:200]}", 500)
        text = "".join(piece for piece, _ in pieces)
        content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return JSONResponse({**about, "object": "chat.completion" if chat else "text_completion",
                             "choices": [choice(content, pieces[-1][1])], "usage": usage(job, tokens)})

    def read(self, chat, request):
        """Makes a job of a request, or raises Wrong."""
        if not isinstance(request, dict):
            raise Wrong("the body is not a JSON object")
        if request.get("model", self.name) != self.name:
            raise Wrong(f"the model {str(request['model'])[:80]!r} does not exist; there is {self.name!r}", "model",
                        404, "model_not_found")
        for name, neutral in NEUTRAL.items():
            if request.get(name) is not None and request[name] not in neutral:
                raise Wrong(f"{name}: there is one choice, of plain text; leave {name} out", name)
        sampling = read_sampling(request, self.ingress.samples)
        stops = request.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(s, str) and s for s in stops):
            raise Wrong("stop is a text, or a list of up to 4", "stop")
        ids = self.chat(request.get("messages")) if chat else self.prompt(request.get("prompt"))
        room = self.ingress.room - len(ids)
        count = request.get("max_completion_tokens") or request.get("max_tokens") or (room if chat else 16)
        if type(count) is not int or count < 1:
            raise Wrong("max_tokens is a whole number above 0", "max_tokens")
        if not ids or count > room:
            raise Wrong(f"{len(ids)} tokens and {count} more: there is room for 1 to {self.ingress.room}", None, 400,
                        "context_length_exceeded")
        options = request.get("stream_options") or {}
        return Job(ids, count, stops, request.get("stream") is True,
                   isinstance(options, dict) and options.get("include_usage") is True, sampling)

    def prompt(self, prompt):
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if isinstance(prompt, list) and prompt and all(type(x) is int and 0 <= x < 2**31 for x in prompt):
            return prompt
        if not isinstance(prompt, str):
            raise Wrong("prompt is a text, or a list of token ids; send a request for each prompt", "prompt")
        return self.encode(prompt)

    def chat(self, messages):
        if not self.template:
            raise Wrong("the tokenizer's folder has no chat template", "messages")
        if not isinstance(messages, list) or not messages:
            raise Wrong("messages is a list of objects with role and content", "messages")
        made = []
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise Wrong("a message is an object with role and content", "messages")
            content = message.get("content") or ""
            if isinstance(content, list) and all(isinstance(x, dict) and x.get("type") == "text" for x in content):
                content = "".join(str(x.get("text", "")) for x in content)
            if not isinstance(content, str):
                raise Wrong("the content of a message is text", "messages")
            made.append({**message, "content": content})
        try:
            return self.encode(self.template(made), add_special_tokens=False)
        except Wrong:
            raise
        except Exception as e:  # whatever a template does with these messages
            raise Wrong(f"the chat template: {type(e).__name__}: {str(e)[:200]}", "messages") from e

    def encode(self, text, **options):
        if not self.ingress.tokenizer:
            raise Wrong("the server has no tokenizer: send a prompt of token ids", "prompt")
        return self.ingress.tokenizer.encode(text, **options).ids

    async def pieces(self, job, tokens):
        """Yields pieces of the text, the last one with the reason for the end. Appends to tokens."""
        stops, to_text = Stops(job.stops), self.ingress.text_stream([])
        stream = self.ingress.go_on(job.ids, job.max_tokens, self.ingress.stop, tokens, job.sampling)
        try:
            async for token in stream:
                piece = stops.add("" if token in self.ingress.stop else to_text(token).get("text", ""))
                if stops.over:
                    yield piece, "stop"
                    return
                if piece:
                    yield piece, None
        finally:
            await stream.aclose()
        yield stops.held, "stop" if tokens and tokens[-1] in self.ingress.stop else "length"

    async def events(self, chat, job, about):
        about = {**about, "object": "chat.completion.chunk" if chat else "text_completion"}
        tokens, first = [], True
        try:
            async for piece, reason in self.pieces(job, tokens):
                if chat:
                    content = {"delta": {"role": "assistant", "content": piece} if first else {"content": piece}}
                else:
                    content = {"text": piece}
                first = False
                yield event({**about, "choices": [choice(content, reason)]})
        except Exception as e:  # the stream has begun: its status is sent
            yield event(error(f"{type(e).__name__}: {str(e)[:200]}", 500))
            return
        if job.usage:
            yield event({**about, "choices": [], "usage": usage(job, tokens)})
        yield "data: [DONE]\n\n"


def choice(content, reason):
    return {"index": 0, "finish_reason": reason, "logprobs": None, **content}


def usage(job, tokens):
    return {"prompt_tokens": len(job.ids), "completion_tokens": len(tokens),
            "total_tokens": len(job.ids) + len(tokens)}


def event(content):
    return f"data: {json.dumps(content)}\n\n"


def error(why, status, param=None, code=None):
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": why, "type": kind, "param": param, "code": code}}


def failure(why, status, param=None, code=None):
    return JSONResponse(error(why, status, param, code), status)
