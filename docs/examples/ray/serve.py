"""Serves a patched decoder with Ray Serve: serve run serve.yaml --working-dir docs/examples/ray

A request is JSON: {"ids": […] or "prompt": "…", "max_tokens": 64}. The answer is a stream of server-sent events, one
for each token, {"token": 5, "text": "…"}, and [DONE] at the end. A client whose stream broke asks again, with "tokens":
[…], those that it has, and is sent the ones behind them (client.py): greedy decoding finds the same, and so does
sampling with a "seed". Below /v1 the requests and answers are OpenAI's (openai_api.py), with the same options.
"""

import asyncio
import gzip
import json
import logging
import pathlib
from collections import deque
from dataclasses import dataclass, field

from ray import serve
from ray.exceptions import RayError, RayTaskError
from starlette.requests import Request
from starlette.responses import StreamingResponse

from decoder import Decoder
from engine import Engine
from openai_api import API, Wrong, failure, read_sampling, read_template
from ranks import Ranks, read_ranks

log = logging.getLogger("ray.serve")

READ_SECONDS = 30  # for the body of a request
BYTES_A_TOKEN = 64  # of the body, for each token that there is room for


@dataclass(eq=False)
class Sequence:
    ids: list
    max_tokens: int
    stop: list
    sampling: tuple  # further arguments of the decoder's start
    tokens: asyncio.Queue = field(default_factory=asyncio.Queue)  # the last one is None or an exception
    left: bool = False  # no client waits for further tokens

    def send(self, token):
        self.tokens.put_nowait(token)
        self.max_tokens -= 1
        if self.max_tokens == 0 or token in self.stop:
            self.end(None)

    def end(self, reason):
        self.tokens.put_nowait(reason)
        self.left = True


@serve.deployment
class Model:
    """Batches continuously: a request joins the others at the next step, and leaves with its last token."""

    def __init__(self, decoder, *args):
        self.decoder = decoder(*args)
        self.waiting, self.running = deque(), []  # the sequence of each row
        self.wake = asyncio.Event()
        self.loop = asyncio.get_running_loop().create_task(self.decode())

    async def generate(self, ids, max_tokens, stop, sampling=()):
        self.check_health()
        sequence = Sequence(ids, max_tokens, stop, sampling)
        self.waiting.append(sequence)
        self.wake.set()
        try:
            while (token := await sequence.tokens.get()) is not None:
                if isinstance(token, Exception):
                    raise token
                yield token
        finally:
            sequence.left = True

    async def decode(self):
        try:
            while True:
                if not self.waiting and not self.running:
                    self.wake.clear()
                    await self.wake.wait()
                await self.step()
        except Exception as e:
            for sequence in (*self.running, *self.waiting):
                sequence.end(e)
            raise

    async def step(self):
        """Continues each running sequence by a token, and starts new ones while they fit, in their order."""
        if self.running:
            for sequence, token in zip(self.running, await asyncio.to_thread(self.decoder.step)):
                if isinstance(token, Exception):
                    sequence.end(token)
                elif token is not None:  # an Engine's prompt takes several steps
                    sequence.send(token)
        while self.waiting:
            sequence = self.waiting.popleft()
            if sequence.left:
                continue
            try:
                if not self.decoder.fits(sequence.ids, sequence.max_tokens):
                    self.waiting.appendleft(sequence)
                    break
                token = await asyncio.to_thread(self.decoder.start, sequence.ids, sequence.max_tokens,
                                                *sequence.sampling)
            except Exception as e:  # ids that the model does not have
                sequence.end(e)
            else:
                self.running.append(sequence)
                if token is not None:
                    sequence.send(token)
        for row in reversed(range(len(self.running))):
            if self.running[row].left:
                self.decoder.stop(row)  # which moves the last one here
                self.running[row] = self.running[-1]
                self.running.pop()

    def check_health(self):
        """Raises if this replica must be replaced."""
        if self.loop.done():
            raise RuntimeError("decoding has ended") from self.loop.exception()


def read_tokenizer(folder):
    """Reads the tokenizer of a folder, and the ids that end a text, if the folder has any."""
    from tokenizers import Tokenizer

    folder = pathlib.Path(folder)
    plain, packed = folder / "tokenizer.json", folder / "tokenizer.json.gz"
    if not plain.exists() and not packed.exists():
        raise FileNotFoundError(f"{folder} has neither {plain.name} nor {packed.name}")
    content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    stop = []
    for name in ("genai_config.json", "generation_config.json"):  # the latter counts
        if (folder / name).exists():
            config = json.loads((folder / name).read_text(encoding="utf-8"))
            stop = config.get("model", config).get("eos_token_id", stop)
    return Tokenizer.from_str(content.decode()), stop if isinstance(stop, list) else [stop]


@serve.deployment
class Ingress:
    """Answers over HTTP. If a replica is lost, continues its request on another one, from the last token."""

    def __init__(self, model, room, folder=None, tries=10, name="model",
                 samples=False):
        self.model = model.options(stream=True)
        self.room, self.tries, self.samples = room, tries, samples
        self.tokenizer, self.stop, template = None, [], None
        if folder:
            self.tokenizer, self.stop = read_tokenizer(folder)
            template = read_template(folder)
        self.api = API(self, name, template)

    async def __call__(self, http: Request):
        if http.url.path.startswith("/v1/"):
            return await self.api.answer(http)
        try:
            request = await self.read(http)
            if "ids" not in request and not self.tokenizer:
                raise ValueError("there is no tokenizer here: give ids")
            ids = request["ids"] if "ids" in request else self.tokenizer.encode(request["prompt"]).ids
            tokens, stop = list(request.get("tokens", [])), request.get("stop", self.stop)
            max_tokens = request.get("max_tokens", 64)
            sampling = read_sampling(request, self.samples)
            numbers = (*ids, *tokens, *stop, max_tokens)
            if not all(type(x) is int and 0 <= x < 2**31 for x in numbers) or not ids or max_tokens < 1:
                raise ValueError("ids, tokens and stop are lists of whole numbers, max_tokens is one above 0")
            if len(ids) + max_tokens > self.room or len(tokens) > max_tokens:
                raise ValueError(f"{len(ids)} tokens and {max_tokens} more: there is room for {self.room}")
        except Wrong as e:
            return failure(e.args[0], e.status)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return failure(f"not a request: {type(e).__name__}: {str(e)[:200]}", 400)
        return StreamingResponse(self.events(ids, max_tokens, stop, tokens, sampling), media_type="text/event-stream")

    async def read(self, http):
        """Returns the JSON of a request, or raises Wrong: its length and the time that it takes are bounded."""
        try:
            return json.loads(await asyncio.wait_for(self.body(http), READ_SECONDS))
        except asyncio.TimeoutError:
            raise Wrong(f"the body did not come within {READ_SECONDS} s", status=408) from None
        except (ValueError, RecursionError) as e:
            raise Wrong(f"not JSON: {type(e).__name__}: {str(e)[:200]}") from e

    async def body(self, http):
        most = 4096 + BYTES_A_TOKEN * self.room
        body = bytearray()
        async for part in http.stream():
            body += part
            if len(body) > most:
                raise Wrong(f"a request has up to {most} bytes", status=413)
        return bytes(body)

    async def events(self, ids, max_tokens, stop, tokens, sampling):
        to_text = self.text_stream(tokens)
        async for token in self.go_on(ids, max_tokens, stop, tokens, sampling):
            yield f"data: {json.dumps({'token': token, **to_text(token)})}\n\n"
        yield "data: [DONE]\n\n"

    def text_stream(self, tokens):
        """Returns a function that makes text of the next tokens: a character may have several tokens."""
        if not self.tokenizer:
            return lambda token: {}
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=True)
        for token in tokens:
            stream.step(self.tokenizer, token)
        return lambda token: {"text": stream.step(self.tokenizer, token) or ""}

    async def go_on(self, ids, max_tokens, stop, tokens, sampling=None):
        """Appends to tokens and yields the appended ones."""
        for attempt in range(self.tries):
            if len(tokens) >= max_tokens or tokens and tokens[-1] in stop:
                return
            answer = self.model.generate.remote(ids + tokens, max_tokens - len(tokens), stop,
                                                (*sampling, len(tokens)) if sampling else ())
            try:
                async for token in answer:
                    tokens.append(token)
                    yield token
                return
            except GeneratorExit:  # a stop text came
                answer.cancel()
                raise
            except RayTaskError:  # the model's own errors
                raise
            except RayError as e:  # the replica or its node is gone
                if attempt + 1 == self.tries:
                    raise
                log.warning("going on at token %d with another replica: %s", len(tokens), type(e).__name__)
                await asyncio.sleep(0.1 * 2 ** min(attempt, 5))


def build(args):
    """The application; args come from serve.yaml. Wrong ones are reported before anything starts."""
    ranks = read_ranks(args["model"])
    if not ranks and not pathlib.Path(args["model"]).is_file():
        raise FileNotFoundError(f"there is no model {args['model']}")
    if args.get("tokenizer"):
        read_tokenizer(args["tokenizer"])
        read_template(args["tokenizer"])
    if args.get("pool") and args["pool"] < args["room"]:
        raise ValueError(f"a pool of {args['pool']} tokens has no room for a sequence of {args['room']}")
    if args.get("sample") and not args.get("pool"):
        raise ValueError("sample needs a pool: a model of apply --last-logits --cache paged=16 --sample")
    decoder, pool = (Engine, [args["pool"]]) if args.get("pool") else (Decoder, [])
    common = args["rows"], args["room"], args["threads"], *pool
    if ranks:  # a process for each, on one node if it has room
        bundles = [{"CPU": max(args["threads"], 1)}] * ranks
        model = Model.options(placement_group_bundles=bundles).bind(Ranks, decoder, args["model"], ranks, *common)
    else:
        model = Model.bind(decoder, args["model"], *common)
    return Ingress.bind(model, args["room"], args.get("tokenizer"), name=args.get("name", "model"),
                        samples=args.get("sample", False))
