"""Records which characters Oniguruma has in a class: as Hugging Face's tokenizers (0.23.3) split the text of all of
them.

    pip install tokenizers==0.23.3
    python llm/tokenizer/internal/onig/testdata/record.py

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
# Patterns of tokenizers that are in use, and of each piece of syntax.
PATTERNS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "[一-龥\u3040-ゟ゠-ヿ]+", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r"[\p{Han}&&[^一]]+|[^\p{Han}]+",
    r"(?:^|[^'a])b?", "^.", "^", "$", ".$", r"\A.", r".\z", r".\Z", r"\b", r"\B", r"\b\w+\b", r"\R", r"\h+", r"\H+", r"[\d\-x]+", r"[]a]+", r"[a-c&&b-d]+",
    r"[^a-c&&b-d]+", r"[[:alpha:]&&[^a-z]]+", r"[[:^space:]]+", r"[a[^b]]+", r"[\w-]+", r"[+-]", r"[a-c-e]+", r"a{2}", r"a{2}?", r"a{,2}", r"a{2,}", r"a{1,2}?", r"a{1,2}+b?",
    r"a{x}|a{", r"a*?b", r"a+?", r"a??b", r"a?+a", r"a*+a", r"(?>a*)a|b", r"(?:ab|a)(?:c|bcd)?", r"(a|ab)(c|bcd)(d*)", r"(?<n>a)b", r"(?'n'a)b", r"(?#no)a(?#)b", r"a(?i)b|c",
    r"(?i)traxe|kelvin|ſ", r"(?i:[k-m]+)|(?i:É)", r"(?-i:A)|(?i-m:b.)", r"(?m:.+)", r"(?m).", r"(?<=a)b", r"(?<!a)b", r"(?<=a|bc)d", r"(?<=\n)\s*", r"(?!a)\w", r"\x41|\x{e9}|\u00e9",
    r"\t|\n|\r|\f|\v|\a|\e|\0", r"\.\*\[\]|\-|\/|\#|\ |\é", r"x*", r"(?:a?)*b", r"(?:a*)+", r"(?:)", r"|a", r"a|", r"\p{Lu}\p{Lowercase_Letter}*",
    r"\p{^Lu}+", r"\P{^Lu}+", r"\p{greek}+|\p{ Cyrillic }+", r"[\P{L}\p{Lu}]+", r"\S+\s?|\W", r"[\s\S]{3}", r"(?:\r\n|\n)+", r"}|]|{", r"a**|b+*", r"(?i:K)", r"[\x{100}-\x{24f}]+",
    r"\s+$", r"^\s+", r"[^\S\r\n]+", r"\n^", r"a$\n", r"(?:$\n?)+", r"[\b]", r"[a\]b]+", r"[&&a]|[a&&]", r"[a&b]+", r"(?i:[^a-z]+)", r"(?i:\p{L}+)", r"(?i:ab|K)+",
]
TEXTS = ["", "a", "b", "aaab aab ab b", "abcd abc abd aabbcc", "Hello World, it's 12345 o'clock. I'LL go 'Re", "a\nb\n\nc\n", "a\r\nb\r\n", "\n", " \t\n  x \n", "a1b22c333d4444 1234567 x",
         "Éé Straxe STRAXE ſ Kelvin KELVIN k m", "一二三 abc 漢字かなカナ。，", "क्षि १२३ é e\u0301", "x-y_z [a] {a} a{x} a{ &|}", "ΑΒγ Δδ ЖЗж \u01c5", "²³¼ ½x\u0085\u2028\u00a0 ",
         ".*[] - / # \t\f\v\a\x1b\x00 A\x08", "ĀāƐɏ", "👩‍👩‍👧 1️⃣", "aaaa", "bbbb\nbbb", "   \n\n   \n"]


def pieces(pattern):
    """A digest of how the texts are split."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return hashlib.sha256("\x1f".join("\x1e".join(p for p, _ in split.pre_tokenize_str(t)) for t in TEXTS).encode()).hexdigest()[:16]


def digest(pattern, text):
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    spans = []
    for run, _ in split.pre_tokenize_str(text):
        a, b = ord(run[0]), ord(run[-1])
        for first, last in [(a, b)] if b < 0xD800 or a > 0xDFFF else [(a, 0xD7FF), (0xE000, b)]:
            spans.append(f"{first:x}-{last:x}")
    return hashlib.sha256(";".join(spans).encode()).hexdigest()[:16]


def write(name, value):
    (pathlib.Path(__file__).parent / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    text = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF)
    classes = [rf"\p{{{p}}}" for p in CATEGORIES + SCRIPTS] + [f"[[:{p}:]]" for p in POSIX] + OTHERS
    write("classes.json", {c: digest(c, text) for c in classes})
    write("splits.json", {"texts": TEXTS, "splits": {p: pieces(p) for p in PATTERNS}})
