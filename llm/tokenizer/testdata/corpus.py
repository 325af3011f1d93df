"""Lines of text that tokenizers find hard, made from a seed."""
import random
import unicodedata

SCRIPTS = """The quick brown fox jumps over the lazy dog.
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.
Falsches Üben von Xylophonmusik quält jeden größeren Zwerg. STRASSE, Straße, ſtraſſe
Příliš žluťoučký kůň úpěl ďábelské ódy.
Zażółć gęślą jaźń. Pijamalı hasta yağız şoföre çabucak güvendi. İIıi
Съешь же ещё этих мягких французских булок, да выпей чаю. 25 рублей
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΑΣ ας
עטלף אבק נס דרך מזגן שהתפוצץ כי חם. שָׁלוֹם
نص حكيم له سر قاطع وذو شأن عظيم. ١٢٣٤٥ السَّلَامُ عَلَيْكُمْ
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण। क्ष १२३
আমি বাংলায় গান গাই। ৪৫৬
யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓๔
我能吞下玻璃而不伤身体。一二三四五,12345元。
いろはにほへと ちりぬるを 色は匂へど 散りぬるを。カタカナ ガギグ ㍿ ｶﾞ
다람쥐 헌 쳇바퀴에 타고파. 123개 한글
სადაც არის ქართული, հայերեն գրված տեքստ
ᚠᛇᚻ᛫ᛒᛦᚦ ᚠᚱᚩᚠᚢᚱ 𐍈𐌰𐌹 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𓀀𓁐
ភាសាខ្មែរ ພາສາລາວ မြန်မာဘာသာ བོད་སྐད་ አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ
Ⅷ ½ ⅓ ² ³ ₁₂ ① ⑳ ㊿ ௧௨ 〇 ᠐᠑ Ⅻ ⅻ ↈ""".split("\n")

EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "🤷🏾‍♀️", "😀😃😄", "1️⃣", "🧑‍💻", "☕", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "⚖️"]
ODD = ["\u200b", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u2028", "\u2029", "\x85", "\x00", "\x01\x02", "\x7f", "\x1b[31m", "\v", "\f", "\u180e", "\u202e",
       "\u2009", "\u1680", "\ue000", "\U0010ffff", "\ufffd", "\u0345", "\u00ad", "\u212a", "\u017f", "\u2126", "\u0149", "\ufb01", "\u1e9e"]
MARKS = ["e\u0301", "\u00e9", "a\u0308\u0323", "n\u0303o", "\u1e69", "s\u0323\u0307", "\uac01", "\u1100\u1161\u11a8", "q\u0307\u0323", "\u0301", "\u0958", "Å\u030a", "c\u0327\u0301"]
CONTRACTIONS = "I'm you're he'll we've I'd it's don't 'S 'T 'RE 'VE 'M 'LL 'D O'Neill rock'n'roll 'tis '' I’m it’s 'ſ 'sſ y'all'd've 'LLama 'vE".split(" ")
URLS = ["https://example.org/a/b?c=1&d=%20#frag", "mailto:someone@example.com", "C:\\Users\\x\\file.txt", "/usr/lib/python3.11/site-packages/",
        "user@host:~$ ls -la | grep '^d' > out.txt 2>&1", "2024-02-29T23:59:59.999Z", "+1 (555) 010-9999", "192.168.0.1:8080", "3.14159e-10", "1,234,567.89", "$1,000.00"]
CODE = """def f(x: int) -> str:\n    return f"{x!r:>10}"  # comment\n
\tif (a[i] != b[j] && !c) {\n\t\treturn a ? b : c;\n\t}\n
#include <stdio.h>\r\nint main(void) { printf("%d\\n", 0x1F); return 0; }\r\n
SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';
<div class="a b">&nbsp;text</div><!-- c -->
fn main() { let v: Vec<u8> = vec![1, 2, 3]; println!("{:?}", v); }
{"key": [1, 2.5, null, true], "k2": {"a": "b\\u00e9"}}
x = (a**2 + b**2)**.5 ; y //= 3 ; z := w <<= 2
| a | b |\n|---|:-:|\n| 1 | **2** |""".split("\n\n")


def words(r):
    letters = "abcdefghijklmnopqrstuvwxyz"
    kind = r.randrange(6)
    if kind == 0:
        return "".join(r.choice(letters) for _ in range(r.randint(1, 12)))
    if kind == 1:
        return str(r.randrange(10 ** r.randint(1, 12)))
    if kind == 2:
        return "".join(r.choice("ABCXYZabcxyz019_-'") for _ in range(r.randint(1, 10)))
    if kind == 3:
        return r.choice(r.choice(SCRIPTS).split(" "))
    if kind == 4:
        return r.choice(EMOJI + ODD + MARKS + CONTRACTIONS + URLS)
    return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randint(1, 5)))


SPACES = [" ", " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", " \n", "\n ", "\r\n", "", "", "          ", "\t\t ", "\u00a0", "\u3000 ", " \t\n  "]


def mixed(r, special):
    """Words of all kinds with white space of all kinds between them, special tokens among them."""
    out = []
    for _ in range(r.randint(1, 9)):
        out.append(r.choice(special) if special and r.random() < 0.15 else words(r))
        out.append(r.choice(SPACES))
    return "".join(out)


def points(r):
    """Any characters: most from the planes that are in use."""
    out = []
    for _ in range(r.randint(1, 12)):
        top = r.choice([0x80, 0x250, 0x600, 0x3000, 0xFFFF, 0x1FFFF, 0x323AF])
        c = chr(r.randrange(top))
        if not "\ud800" <= c <= "\udfff" and unicodedata.category(c) != "Cn":
            out.append(c)
    return "".join(out)


def fixed(special):
    """Lines that are always there."""
    out = ["", " ", "  ", "\n", "a", " a", "a ", " 1", "  1", "1 2  3   4", "12345 678", "a1b2c3", "x 1y", "\t1\n2"]
    out += SCRIPTS + EMOJI + ODD + MARKS + CONTRACTIONS + URLS + CODE
    out += [unicodedata.normalize(form, line) for line in SCRIPTS for form in ("NFC", "NFD", "NFKC")]
    out += ["a" + m + "b " + m for m in ODD + MARKS] + ["It" + c + " " + c.upper() for c in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "’s")]
    out += [" " * n + "x" + "\n" * n + "y" + "\t" * n for n in range(1, 9)]
    out += ["e" + "\u0301\u0323" * 20 + "x", "o" + "\u0328\u0304" * 9 + "é", "\u0301" * 33]  # more marks than Stream-Safe Text Format allows
    out += ["\u1c89\u1c8a \U00010d50\U00010d70 \U00016130\U0001ccf0", "Ћћ\u1c8ax", "\U0002ebf0字", "\U00010781x \ua7f2", "\U00011935\U00011930"]  # since Unicode 9.0
    out += ["a" * 300, "ab" * 150, "é" * 120, "漢字" * 60, "9" * 100, " " * 200, "\n" * 90, "-" * 130, "AbC" * 70, "👍" * 40, "x" + " " * 150 + "y"]
    for s in special:
        out += [s, "a" + s + "b", " " + s + " ", s + s, s + "\n" + s, s[:-1], s[1:], "  " + s + "  x", s.upper(), s + s[:-1], "é" + s + "é", "_" + s + "1", ". " + s + ","]
    return out


def lines(count, seed, special):
    """count different lines, at most half of them fixed ones."""
    r = random.Random(seed)
    always = fixed(special)
    if len(always) > count // 2:
        always = r.sample(always, count // 2)
    out = dict.fromkeys(always)
    while len(out) < count:
        out[mixed(r, special) if r.random() < 0.8 else points(r)] = None
    return list(out)
