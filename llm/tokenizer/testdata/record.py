"""Records what Hugging Face's tokenizers (0.23.3) makes of the lines of corpus.py, with SmolLM2's tokenizer and the
small ones of styles.py.

    pip install tokenizers==0.23.3
    python llm/tokenizer/testdata/record.py [--train] [--lines N --seed N --out FOLDER]

Each record is [text, ids] or, where decoding the ids gives another text, [text, ids, decoded].
"""
import argparse
import gzip
import json
import pathlib

import corpus
import styles
import tokenizers

HERE = pathlib.Path(__file__).parent
SMOLLM2 = HERE.parent.parent / "models" / "smollm2" / "tokenizer.json.gz"


def write(path, text):
    """The same bytes each time."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    path.write_bytes(data)
    print(path.name, len(data), "bytes")


def record(t, path, count, seed, special):
    rows = []
    for text in corpus.lines(count, seed, special):
        ids = t.encode(text).ids
        decoded = t.decode(ids, skip_special_tokens=False)
        rows.append(json.dumps([text, ids] + ([decoded] if decoded != text else []), ensure_ascii=False, separators=(",", ":")))
    write(path, "\n".join(rows))


if __name__ == "__main__":
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    args = argparse.ArgumentParser()
    args.add_argument("--lines", type=int, help="of each tokenizer; by default what the tests have")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--train", action="store_true", help="make the small tokenizers anew: equal counts leave the order of merges open")
    args.add_argument("--out", type=pathlib.Path, default=HERE)
    args = args.parse_args()
    smollm2 = tokenizers.Tokenizer.from_str(gzip.decompress(SMOLLM2.read_bytes()).decode())
    record(smollm2, args.out / "smollm2.jsonl.gz", args.lines or 700, args.seed, ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"])
    for i, make in enumerate(styles.ALL):
        saved = HERE / f"{make.__name__}.json.gz"
        if args.train:
            t, file = make()
            write(saved, json.dumps(file or json.loads(t.to_str()), ensure_ascii=False, separators=(",", ":")))
        t = tokenizers.Tokenizer.from_str(gzip.decompress(saved.read_bytes()).decode())
        special = [a.content for a in t.get_added_tokens_decoder().values()]
        record(t, args.out / f"{make.__name__}.jsonl.gz", args.lines or 60, args.seed + 100 + i, special)
