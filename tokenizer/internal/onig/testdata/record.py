"""Records which characters Oniguruma has in a class: as Hugging Face's tokenizers (0.23.3) split the text of all of them.

    pip install tokenizers==0.23.3
    python tokenizer/internal/onig/testdata/record.py

For each class a digest of its intervals, U+0000 and surrogates left out.
"""
import hashlib
import json
import pathlib

import tokenizers
from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn L M N P S Z C".split()
SCRIPTS = "Han Hiragana Katakana Hangul Thai Arabic Latin Cyrillic Greek Devanagari Bengali Lao Khmer Myanmar Hebrew Inherited Common".split()
POSIX = "alnum alpha blank cntrl digit graph lower print punct space upper word xdigit".split()
OTHERS = [r"\s", r"\S", r"\d", r"\w", r"[\w]", r"\W", r"\h", r"\p{Word}", ".", r"\p{^L}", r"\P{L}", "[^a]", "(?i:s)", "(?i:k)", "(?i:å)", "(?i:[a-z])", "(?i:µ)",
          r"\p{Alphabetic}", r"\p{Uppercase}", r"\p{Lowercase}", r"[\p{L}&&[^\p{Han}]]", r"[^\r\n\p{L}\p{N}]", r"[^(\s|[.,!?…。，、।۔،])]"]


def digest(pattern, text):
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    spans = []
    for run, _ in split.pre_tokenize_str(text):
        a, b = ord(run[0]), ord(run[-1])
        for a, b in [(a, b)] if b < 0xD800 or a > 0xDFFF else [(a, 0xD7FF), (0xE000, b)]:
            spans.append(f"{a:x}-{b:x}")
    return hashlib.sha256(";".join(spans).encode()).hexdigest()[:16]


if __name__ == "__main__":
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    text = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF)
    classes = [rf"\p{{{p}}}" for p in CATEGORIES + SCRIPTS] + [f"[[:{p}:]]" for p in POSIX] + OTHERS
    out = {c: digest(c, text) for c in classes}
    (pathlib.Path(__file__).parent / "classes.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
