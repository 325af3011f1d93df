"""Records what transformers renders of conversations by the templates here, and of the small templates of
expressions.txt (one a line; \\n, \\r and \\t outside of tags stand for the characters): python record.py |
gzip -9n >recorded.json.gz

Needs transformers and jinja2 (made with 5.23.0 and 3.1.6); the time is fixed. A template that refuses a conversation is
recorded with its error.

templates/qwen3.jinja is that of Qwen3-8B (Qwen, Apache-2.0), templates/gpt-oss.jinja that of gpt-oss-20b (OpenAI,
Apache-2.0); the others are written for these tests in the style of the models they are named after.
"""
import datetime
import json
import pathlib
import re

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 7, 9, 5, 4)


chat_template_utils.datetime = Fixed


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


tools = [
    {"type": "function", "function": {
        "name": "weather", "description": "Wetter in \"<Ort>\" & mehr",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City"}, "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": ["integer", "null"], "default": 3}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "Nothing.",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def calls(arguments):
    return [{"type": "function", "id": "abcdef123", "function": {"name": "weather", "arguments": arguments}}]


result = message("tool", "{\"t\": 3, \"sky\": \"clear\"}", tool_call_id="abcdef123", name="weather")
conversations = {
    "one": ([message("user", "Hello")], {}),
    "prompt": ([message("user", "Hello")], {"add_generation_prompt": True}),
    "system": ([message("system", " Be brief.\n"), message("user", "Hi\nthere")], {"add_generation_prompt": True}),
    "turns": (
        [
            message("system", "S"),
            message("user", "q1"),
            message("assistant", "a1"),
            message("user", "q2"),
            message("assistant", "a2\n"),
            message("user", "q3"),
        ],
        {"add_generation_prompt": True},
    ),
    "unicode": (
        [
            message("user", "  日本語 🙂 <b>&'\"\\ \t\u00a0 \n"),
            message("assistant", " o\u0301k {{ x }} \n\n"),
            message("user", "\n\nété\r\n<|im_end|>"),
        ],
        {"add_generation_prompt": True},
    ),
    "prefill": ([message("user", "Count"), message("assistant", "1, 2,")], {}),
    "continued": ([message("user", "Count"), message("assistant", "1, 2, ")], {"continue_final_message": True}),
    "tools": ([message("user", "Weather?")], {"tools": tools, "add_generation_prompt": True}),
    "call": (
        [
            message("system", "S"),
            message("user", "W?"),
            message("assistant", "", tool_calls=calls({"city": "Zürich", "days": 2.0, "unit": None})),
            result,
            message("assistant", "Clear."),
            message("user", "Thx"),
        ],
        {"tools": tools, "add_generation_prompt": True},
    ),
    "null": (
        [message("user", "W?"), message("assistant", None, tool_calls=calls('{"city": "Bern"}')), result, result],
        {"add_generation_prompt": True},
    ),
    "thinking": (
        [
            message("user", "q"),
            message("assistant", "<think>\nr\n</think>\n\na"),
            message("user", "q2"),
            message("assistant", "b", reasoning_content="because"),
        ],
        {},
    ),
    "variables": (
        [message("user", "q")],
        {
            "add_generation_prompt": True,
            "enable_thinking": False,
            "reasoning_effort": "high",
            "date_string": "1 Jan 2000",
            "cls_token": "§",
        },
    ),
    "parts": ([message("user", [{"type": "text", "text": " look "}, {"type": "image"}])], {}),
    "same role": ([message("user", "a"), message("user", "b")], {}),
    "late system": ([message("user", "a"), message("system", "b"), message("user", "c")], {}),
    "other role": ([message("nobody", "x"), message("user", "y")], {}),
    "no content": ([{"role": "user"}], {}),
    "no messages": ([], {"add_generation_prompt": True}),
}


def render(source, messages, options):
    options = dict(options)
    given = {name: options.pop(name, None) for name in ("tools", "add_generation_prompt")}
    try:
        return {"text": chat_template_utils.render_jinja_template(
            [messages], tools=given["tools"], chat_template=source,
            add_generation_prompt=bool(given["add_generation_prompt"]), **{**TOKENS, **options})[0][0]}
    except Exception as e:  # whatever a template raises
        return {"error": f"{type(e).__name__}: {e}"[:80]}


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


context = {
    "s": "Hello World", "e": "", "n": None, "t": True, "f": False, "i": 7, "z": 0, "x": 2.5, "l": [3, 1, 2],
    "m": ["b", "A", "c"], "d": {"b": 1, "a": [1, {"k": "v"}], "items": 5}, "u": "naïve 日本 🙂", "nl": "\n a \n",
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}], "q": "it's \"q\"",
    "ws": "  a  b\tc  ",
}


def expression(source):
    try:
        template = chat_template_utils._compile_jinja_template(source)
        return {
            "text": template.render(messages=[], tools=None, documents=None, add_generation_prompt=False, **context)
        }
    except Exception as e:  # whatever a template raises
        return {"error": f"{type(e).__name__}: {e}"[:80]}


def outside(source):
    """Puts the characters for \\n, \\r and \\t outside of tags."""
    parts = re.split(r"({{.*?}}|{%.*?%}|{#.*?#})", source)
    for i in range(0, len(parts), 2):
        for name, character in (("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t")):
            parts[i] = parts[i].replace(name, character)
    return "".join(parts)


paths = [HERE / "../../../models/smollm2/chat_template.jinja", *sorted((HERE / "templates").glob("*.jinja"))]
print('{"tokens":' + line(TOKENS) + ',\n"conversations":{')
print(",\n".join(line(name) + ":" + line({"messages": m, "options": o}) for name, (m, o) in conversations.items()))
print('},\n"context":' + line(context) + ',\n"expressions":[')
sources = [outside(source) for source in (HERE / "expressions.txt").read_text("utf-8").splitlines()]
print(",\n".join(line(expression(source)) for source in sources))
print('],\n"templates":{')
blocks = []
for path in paths:
    source = path.open(newline="", encoding="utf-8").read()
    rendered = [line(name) + ":" + line(render(source, m, o)) for name, (m, o) in conversations.items()]
    blocks.append(line(str(path)[len(str(HERE)) + 1:]) + ":{\n" + ",\n".join(rendered) + "}")
print(",\n".join(blocks) + "}}")
