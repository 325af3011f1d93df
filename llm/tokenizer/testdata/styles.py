"""Small BPE tokenizers in the styles of known models, trained on lines of corpus.py."""
import json

import corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def special(*names, **flags):
    return [AddedToken(n, special=True, normalized=False, **flags) for n in names]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def byte_level(*before, prefix=False, regex=False):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(prefix, use_regex=regex)])


def train(pre, size=380, normalizer=None, added=(), post=None, ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(corpus.lines(700, 11, []), trainers.BpeTrainer(vocab_size=size, initial_alphabet=BYTES, show_progress=False))
    t.add_tokens(list(added))
    if post:
        t.post_processor = post
    return t


def template(bos, t, eos=None):
    ids = [(n, t.token_to_id(n)) for n in (bos, eos) if n]
    return processors.TemplateProcessing(single=f"{bos} $A" + (f" {eos}" if eos else ""), special_tokens=ids)


def gpt2():
    t = train(pre_tokenizers.ByteLevel(False), added=special("<|endoftext|>"), post=processors.ByteLevel(trim_offsets=False))
    file = json.loads(t.to_str())
    file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]  # as files of before 2024
    return Tokenizer.from_str(json.dumps(file)), file


def llama3():
    t = train(byte_level(split(Regex(LLAMA3))), ignore_merges=True, added=special("<|begin_of_text|>", "<|eot_id|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<|begin_of_text|>", t)])
    file = json.loads(t.to_str())
    # Tokens that no merges lead to: only ignore_merges finds them.
    for word in ("ĠÐ±ÑĥÐ»Ð¾Ðº", "Ġworld", "ably", "123"):
        file["model"]["vocab"].setdefault(word, 900 + len(file["model"]["vocab"]))
    return Tokenizer.from_str(json.dumps(file)), file


def qwen2():
    added = special("<|im_start|>", "<|im_end|>") + [AddedToken("<think>", normalized=False), AddedToken("Å_é", normalized=True)]
    return train(byte_level(split(Regex(QWEN2))), normalizer=normalizers.NFC(), added=added), None


def deepseek():
    t = train(byte_level(*[split(Regex(p)) for p in DEEPSEEK]), added=special("<｜begin▁of▁sentence｜>", "<｜User｜>"))
    t.post_processor = template("<｜begin▁of▁sentence｜>", t)
    return t, None


def o200k():
    return train(byte_level(split(Regex(O200K))), added=special("<|endoftext|>", "<|end|>", "<|endoftext|>x")), None


def cl100k():
    return train(byte_level(split(Regex(CL100K), "removed", True)), added=special("<|endoftext|>")), None


def bloom():
    return train(byte_level(split(Regex(BLOOM)), prefix=False), normalizer=normalizers.NFKC(), added=special("<s>")), None


def roberta():
    added = [AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("<s>", special=True, normalized=False),
             AddedToken("</s>", rstrip=True, special=True, normalized=False), AddedToken("<both>", lstrip=True, rstrip=True),
             AddedToken("word", single_word=True), AddedToken("LOUD", normalized=True), AddedToken("Quiet", single_word=True, normalized=False, lstrip=True),
             AddedToken(" spaced ", normalized=False)]
    t = train(pre_tokenizers.ByteLevel(True), normalizer=normalizers.Lowercase(), added=added)
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t, None


def splits():
    """Every behavior of Split and Digits."""
    pre = byte_level(pre_tokenizers.Digits(False), split("ab", "merged_with_previous"), split(Regex("[aeiou]+"), "merged_with_next"),
                     split(Regex(r"\p{Lu}|$"), "contiguous"), split(Regex(r"[^\s]+"), "isolated", True), split(" ", "removed"), split("-.", "isolated"), regex=True)
    return train(pre, normalizer=normalizers.NFD(), added=special("<|x|>")), None


def llama2():
    """Byte fallback, as models made with SentencePiece have it."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    lines = [w for line in corpus.lines(500, 12, []) for w in line.replace(" ", " ▁").split(" ")]
    t.normalizer = None
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(0, 256) if b != 0xFF]
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=620, limit_alphabet=150, special_tokens=names, show_progress=False))
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(file))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = template("<s>", t)
    return t, None


ALL = [gpt2, llama3, qwen2, deepseek, o200k, cl100k, bloom, roberta, splits, llama2]
