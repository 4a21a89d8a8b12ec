"""Trains the tokenizer of models/pocket and writes tokenizer.json and tokenizer_config.json.

    python3 tools/pocket/train_tokenizer.py --out models/pocket

Byte-level BPE in the layout of Llama 3's tokenizer.json: the same pre-tokenizer expression, post-
processor and special tokens, with a vocabulary of 4,096. While training, digits are split one by
one, so that no merge joins two of them.
"""

import argparse
import json
import os

import chat
import corpus
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
EXPRESSION = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DOCUMENTS = 60000


def texts():
    """What the merges are learned from: the words of the corpus and of the chat format."""
    for messages in corpus.documents(seed=7, count=DOCUMENTS):
        for role, content in messages:
            yield role
            yield "\n\n"
            yield content


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(EXPRESSION.replace(r"\p{N}{1,3}", r"\p{N}")), behavior="isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(chat.SPECIAL_TOKENS),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def tokenizer_json(model):
    vocab, merges = model["vocab"], model["merges"]
    first = len(vocab)
    special = {text: first + i for i, text in enumerate(chat.SPECIAL_TOKENS)}
    begin = chat.BEGIN_OF_TEXT
    added = [
        {
            "id": i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text, i in special.items()
    ]
    template = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": begin, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"SpecialToken": {"id": begin, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": begin, "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {begin: {"id": begin, "ids": [special[begin]], "tokens": [begin]}},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": EXPRESSION},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": {
            "type": "Sequence",
            "processors": [
                {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": False,
                    "use_regex": True,
                },
                template,
            ],
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": dict(sorted(vocab.items(), key=lambda item: item[1])),
            "merges": [m if isinstance(m, str) else " ".join(m) for m in merges],
        },
    }


def tokenizer_config(first):
    decoder = {
        str(first + i): {
            "content": text,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for i, text in enumerate(chat.SPECIAL_TOKENS)
    }
    return {
        "added_tokens_decoder": decoder,
        "bos_token": chat.BEGIN_OF_TEXT,
        "chat_template": chat.TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": chat.END_OF_TURN,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 4096,
        "pad_token": chat.PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="models/pocket")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    model = train()
    write_json(os.path.join(arguments.out, "tokenizer.json"), tokenizer_json(model))
    write_json(
        os.path.join(arguments.out, "tokenizer_config.json"), tokenizer_config(len(model["vocab"]))
    )
    longest = max(len(token) for token in model["vocab"])
    print(
        f"{len(model['vocab'])} tokens and {len(chat.SPECIAL_TOKENS)} special ones; "
        f"the longest has {longest} bytes"
    )


if __name__ == "__main__":
    main()
