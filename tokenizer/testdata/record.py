"""Records what Hugging Face's tokenizers (0.23.3) makes of the lines of corpus.py.

    pip install tokenizers==0.23.3
    python tokenizer/testdata/record.py

Each record is [text, ids] or, where decoding the ids gives another text, [text, ids, decoded].
"""
import gzip
import json
import pathlib

import tokenizers

import corpus

HERE = pathlib.Path(__file__).parent
SMOLLM2 = HERE.parent.parent / "models" / "smollm2" / "tokenizer.json"


def added(t):
    return [a.content for _, a in sorted(t.get_added_tokens_decoder().items())]


def record(t, name, count, seed, special):
    """Writes name.jsonl.gz; the same bytes each time."""
    rows = []
    for text in corpus.lines(count, seed, special):
        ids = t.encode(text).ids
        decoded = t.decode(ids, skip_special_tokens=False)
        rows.append(json.dumps([text, ids] + ([decoded] if decoded != text else []), ensure_ascii=False, separators=(",", ":")))
    data = gzip.compress("\n".join(rows).encode(), 9, mtime=0)
    (HERE / f"{name}.jsonl.gz").write_bytes(data)
    print(name, len(rows), "lines,", len(data), "bytes")


if __name__ == "__main__":
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    smollm2 = tokenizers.Tokenizer.from_file(str(SMOLLM2))
    record(smollm2, "smollm2", 1300, 1, ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"])
