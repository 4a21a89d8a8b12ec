#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizer_parity.json: what Hugging Face's tokenizers makes of many texts.

    pip install tokenizers transformers jinja2
    python3 tools/reference/tokenizer_fixture.py

The check 02_tokenizer_test holds our tokenizer to it, id for id. There are two tokenizers in it: the
bundled model's, and a small one of GPT-2's kind (trained here, and kept inside the fixture), for
what the first does not have: a ByteLevel expression, merges written as pairs, added tokens that are
not special.

For each tokenizer:
  texts    [text, ids with every special token taken as plain text,
            ids with special tokens parsed and the post-processor's added]
  decodes  [ids, text, text without special tokens]
  chats    [messages, ids of the chat template with the prompt for an answer]
"""

import argparse
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]

WORDS = """
Hello|Hello world| Hello|hello, world!|The quick brown fox jumps over the lazy dog.|What is 2+2?
Name a color.|a|I|.|supercalifragilisticexpialidocious|snake_case_name|camelCaseName|kebab-case
https://example.com/a/b?c=d&e=f#g|user@example.com|C:\\path\\to\\file|for (int i = 0; i < n; ++i) {
#include <vector>|x = y**2 # comment|<b>bold</b>|{"key": [1, 2, null]}|$100|50%|a+b=c|==>|!!!|...|?!
don't|I'm|you're|we've|he'll|she'd|it's|DON'T|I'M|YOU'RE|WE'VE|HE'LL|SHE'D|IT'S|'s|'S|'t|'re|'ve|'ll
'd|'m|' s|''s|'''|rock 'n' roll|o'clock|'tis|it’s|l'eau|y'all'd've|'sure|'ream|'veil|'llama|'Re|'lL
'ſ|it'ſ
0|1|12|123|1234|12345|123456|1234567|3333+777|3.14159|1,000,000|2026-11-30|12:34:56|0x1F|1e-5|-7|+49
v1.2.3|٣٤٥٦|१२३४|๑๒๓๔|½|²³|Ⅷ|①②③|１２３４|a1b2c3|007|1000 1000|9999+1=10000
Xin chào|Tiếng Việt|Việt Nam|Nguyễn Thị Minh Khai|đường phố Hà Nội|Trường Đại học|ưỡn ẹo|Ă ă Ơ ơ Ư ư
안녕하세요|한국어|서울특별시|대한민국 만세|가나다라마바사|ㄱㄴㄷ|값|뷁|프로그래밍을 배웁니다
مرحبا بالعالم|العربية|السلام عليكم|لا إله إلا الله|مُحَمَّد|قَالَ|اللغة العربية ١٢٣|پنجاب|گفتگو
สวัสดี|ภาษาไทย|กรุงเทพมหานคร|น้ำ|ผู้ใหญ่|ไม่เป็นไร|๏ ๚
こんにちは|日本語|東京都|カタカナ|ｶﾞ|中文分词|繁體中文|漢字かな交じり文|𠮷野家|你好，世界！
Привет мир|Українська|Ελληνικά|ΑΒΓ ς σ|עברית|שָׁלוֹם|हिन्दी|नमस्ते|க்ஷ|தமிழ்|বাংলা|ქართული|հայերեն|አማርኛ|ភាសាខ្មែរ|မြန်မာ
naïve café|Zürich|Straße|ß|ẞ|İstanbul|ıspanak|Ångström|œuvre|ﬁn|ǅ|ʼn|Č|señor|façade
😀|👍|👍🏽|👩‍👩‍👧‍👦|🏳️‍🌈|🏴‍☠️|🇩🇪|🇩🇪🇫🇷🇻🇳|❤️|☺|✈️|👨🏿‍🚀|1️⃣|#️⃣|🫠|I ❤️ you|😀😀😀|a😀b|🧑‍💻 code|😀 😀|👩‍🚀!
é|e\u0301|ä\u0323|a\u0308\u0323|o\u0302\u0301|\u0301|\u0301a|x\u0300\u0301\u0302|Z\u0351\u036a\u0344a\u0311l\u035eg\u0334o|\u20dd
\u200d|\u200b|\u200e\u200f|\ufeff|\ufeffabc|\u00ad|\u2060|\u180e|a\u180eb|\u00a0|a\u00a0b|\u3000|\u2003x|\u2028|\u2029|\u0085|a\u0085b
\u0000|\u0001\u0002|\u001b[31m|\u007f|\u0008|a\u0000b|\u001c|\u001d\u001e\u001f|\u000b|\u000c|\u0080|\u009f
\ufffd|\uffff|\ufdd0|\ue000|\U0010ffff|\U0001f9ff|\u0378|\U000e0041|\U00020000|\U0001d400\U0001d401
"""
SPACES = [" ", "\n", "\t", "\r", "\r\n", "\u00a0", "\u3000", "\x0b", "\x0c", "\u2028", "\u0085", "\u180e"]
PARTS_OF_SPECIALS = ["<|", "|>", "<|eot_id", "eot_id|>", "<|eot_id |>", "<|EOT_ID|>", "<<|eot_id|>>"]
PARTS_OF_SPECIALS += ["<|begin_of_text|", "<|end_header_id|", "<|<|eot_id|>|>", "< |eot_id|>"]
CHATS = [
    [["user", "What is 2+2?"]],
    [["user", "  What is 2+2?\n\n"]],
    [["user", ""]],
    [["user", "\u3000\u00a0\x1c Hi \x85\u2028"]],
    [["system", "You are terse."], ["user", "Name a color."]],
    [["user", "Xin chào! 👩‍🚀"], ["assistant", "Chào bạn.\n"], ["user", "\n\n3333+777?"]],
    [["assistant", "I speak first."]],
]
NUM_TEXTS = 800
NUM_DECODES = 300


def texts(specials, seed):
    """At least 500 texts: the curated ones, then compositions of them."""
    rng = random.Random(seed)
    words = [word for line in WORDS.split("\n")[1:-1] for word in line.split("|")]
    result = [""] + words
    for space in SPACES:
        result += [space * n for n in (1, 2, 3, 4, 7)]
        result += [f"a{space}b", f"a{space}{space}b", f"{space}1", f"{space}!{space}\n"]
        result += [f"x{space}\n\n{space}y"]
    result += ["    def f():\n        return 1\n", "a \n b", "a\n \nb", "a  \n\n  b", "!\n\n", "! \n"]
    result += ["\n\n\n  x", " \t \t"]
    for special in specials:
        result += [special, f"a{special}b", f" {special} ", special * 3, f"{special}\n\n{special}"]
        result += [special[:-1], special[1:]]
    result += PARTS_OF_SPECIALS
    result += ["a" * 1000, "ab" * 700, " " * 1000 + "x", "\n" * 500, "1" * 1000, "!" * 500]
    result += ["é" * 300, "한" * 300, "👩‍🚀" * 50, "a" * 24, "a" * 25, "'s" * 100]
    result += ["antidisestablishmentarianism" * 30]
    glue = ["", "", " ", " ", "\n", "  ", "\t", ", ", "'s ", "123", "\r\n"]
    pool = words + specials + PARTS_OF_SPECIALS
    while len(result) < NUM_TEXTS:
        count = rng.randint(2, 7)
        result.append("".join(rng.choice(pool) + rng.choice(glue) for _ in range(count)))
    return list(dict.fromkeys(result))


def cases(tokenizer, seed):
    """The texts and decodes of one tokenizer."""
    rng = random.Random(seed)
    added = tokenizer.get_added_tokens_decoder()
    specials = [token.content for token in added.values()][:12]
    all_ids = sorted(tokenizer.get_vocab().values())
    result = {"texts": [], "decodes": []}
    for text in texts(specials, seed):
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        result["texts"].append([text, plain, tokenizer.encode(text).ids])
    # Random ids are mostly no UTF-8 when joined, which is the point: bytes of all kinds, then any.
    byte_ids = [i for i in all_ids if len(tokenizer.id_to_token(i)) == 1]
    for k in range(NUM_DECODES):
        ids = rng.choices(byte_ids if k % 3 == 0 else all_ids, k=rng.randint(0, 9))
        result["decodes"].append(
            [ids] + [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
        )
    return result


def chats(folder):
    """The chat template's own output, for messages without texts of special tokens in them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    result = []
    for messages in CHATS:
        dicts = [{"role": role, "content": content} for role, content in messages]
        text = tokenizer.apply_chat_template(dicts, tokenize=False, add_generation_prompt=True)
        result.append([messages, tokenizer(text, add_special_tokens=False)["input_ids"]])
    return result


def gpt2_like():
    """A small tokenizer of GPT-2's kind, with added tokens in all their ways."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(WORDS.split("\n") * 3, trainer)
    tokenizer.add_tokens(["<think>", "thought"])  # normalized
    tokenizer.add_tokens([AddedToken("<think> hard", normalized=False)])  # found first, has a space
    tokenizer.add_tokens([AddedToken("é", normalized=False)])  # is spelled like a byte
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="models/pocket", help="folder, from the repository's root")
    parser.add_argument("--out", default=ROOT / "tests/fixtures/tokenizer_parity.json")
    arguments = parser.parse_args()
    folder = ROOT / arguments.model
    model = {"path": f"{arguments.model}/tokenizer.json"}
    model.update(cases(Tokenizer.from_file(str(folder / "tokenizer.json")), seed=1))
    model["chats"] = chats(folder)
    other = gpt2_like()
    small = {"json": other.to_str(), **cases(other, seed=2), "chats": []}
    with open(arguments.out, "w", encoding="ascii") as out:
        out.write('{"tokenizers": [\n')
        for index, tokenizer in enumerate([model, small]):
            out.write(",\n" if index else "")
            lines = []
            for key, value in tokenizer.items():
                rows = ",\n".join(dump(row) for row in value) if isinstance(value, list) else ""
                text = f"[\n{rows}\n]" if isinstance(value, list) else dump(value)
                lines.append(f'"{key}": {text}')
            out.write("{" + ",\n".join(lines) + "}")
        out.write("\n]}\n")
    print(f"{arguments.out}: {len(model['texts'])} and {len(small['texts'])} texts")


def dump(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
