"""Prints the figures of models/pocket's model card.

    python3 tools/pocket/evaluate.py --model models/pocket

Every question is put through the chat template and answered greedily in bf16 by Hugging Face
transformers. They are kept out of the corpus: two-digit sums of pairs never seen, wordings never
seen, story topics never seen together. The exceptions are few enough to be learned by heart or are
drawn at random: one-digit sums, three-digit sums, differences and products.
"""

import argparse
import json
import random
import re
import time

import chat
import corpus
import everyday
import stories
import terms
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

DEMO_PROMPTS = [
    "What is 2+2?",
    "Name a color.",
    "What is a KV cache?",
    "Tell me a short story about a robot and a lighthouse.",
]


class Answerer:
    def __init__(self, path, device):
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = (
            AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device).eval()
        )
        self.end_of_turn = self.tokenizer.convert_tokens_to_ids(chat.END_OF_TURN)
        self.ends = self.model.generation_config.eos_token_id
        self.device = device

    @torch.no_grad()
    def __call__(self, prompts, max_tokens=64, batch=512):
        """For each prompt: (ids without the end token, whether the end-of-turn token came)."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        results = [None] * len(prompts)
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            ids = [
                self.tokenizer.encode(
                    chat.render([("user", prompts[i])], generate=True), add_special_tokens=False
                )
                for i in chosen
            ]
            width = max(map(len, ids))
            pad = self.tokenizer.pad_token_id
            inputs = torch.tensor(
                [[pad] * (width - len(row)) + row for row in ids], device=self.device
            )
            mask = torch.tensor(
                [[0] * (width - len(row)) + [1] * len(row) for row in ids], device=self.device
            )
            output = self.model.generate(
                input_ids=inputs, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False
            )
            for i, row in zip(chosen, output[:, width:].tolist()):
                end = next((k for k, token in enumerate(row) if token in self.ends), len(row))
                results[i] = (row[:end], end < len(row) and row[end] == self.end_of_turn)
        return results

    def texts(self, prompts, max_tokens=64):
        return [(self.tokenizer.decode(ids), stopped) for ids, stopped in self(prompts, max_tokens)]


def score(answerer, name, cases, failures, max_tokens=64):
    """cases: (prompt, a function that judges the answer). Returns the number right."""
    answers = answerer.texts([prompt for prompt, _ in cases], max_tokens)
    right = 0
    for (prompt, judge), (text, stopped) in zip(cases, answers):
        if stopped and judge(text):
            right += 1
        else:
            failures.append((name, prompt, text, stopped))
    return right


def sum_case(wording, a, b):
    return wording.format(a=a, b=b), lambda text, a=a, b=b: text == corpus.sum_answer(a, b)


def key_case(prompt, key):
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, key.split("|"))) + r")")
    return prompt, lambda text: bool(pattern.search(text))


def careless(prompt):
    return prompt.lower().rstrip(".?!")


def everyday_cases(each=12):
    """For each kind of question up to `each` items, every one in a wording never seen."""
    cases = {}
    for family in corpus.FAMILIES:
        items = sorted(
            family.items, key=lambda item: stories.stable_hash("item", family.name, str(item[0]))
        )
        distinct = {str(slots): (slots, answer, key) for slots, answer, key in items}
        chosen = list(distinct.values())[:each]
        for i, (slots, answer, key) in enumerate(chosen):
            wording = family.held_out[i % len(family.held_out)]
            group = "facts" if family.name.startswith("fact ") else family.name
            cases.setdefault(group, []).append(key_case(corpus.fill(wording, slots), key))
    return cases


def term_cases():
    cases = []
    for i, entry in enumerate(terms.TERMS):
        for k in range(2):
            wording = terms.HELD_OUT_QUESTIONS[(i + 3 * k) % len(terms.HELD_OUT_QUESTIONS)]
            prompt = corpus.fill(wording, corpus.term_slots(entry, entry[0][0]))
            cases.append((prompt, lambda text, answer=entry[2]: text == answer))
    for i, (x, y, answer) in enumerate(terms.DIFFERENCES):
        wording = terms.HELD_OUT_DIFFERENCE_QUESTIONS[i % len(terms.HELD_OUT_DIFFERENCE_QUESTIONS)]
        cases.append(
            (everyday.upper_first(wording.format(x, y)), lambda text, answer=answer: text == answer)
        )
    return cases


def longest_shared_run(ids, limit=400):
    """The longest run of tokens that two different stories share."""
    longest = 0
    for n in range(1, limit):
        seen = {}
        shared = False
        for story, row in enumerate(ids):
            for at in range(len(row) - n + 1):
                if seen.setdefault(tuple(row[at : at + n]), story) != story:
                    shared = True
                    break
            if shared:
                break
        if not shared:
            return longest
        longest = n
    return longest


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/pocket")
    parser.add_argument("--stories", type=int, default=100)
    parser.add_argument("--json", help="also write all failures and the stories to this file")
    arguments = parser.parse_args()
    began = time.time()
    answerer = Answerer(arguments.model, "cuda" if torch.cuda.is_available() else "cpu")
    failures = []

    def report(name, right, total):
        print(f"{name:44s} {right:5d} of {total:5d}  {100 * right / total:6.2f} %", flush=True)

    print("demo prompts")
    for prompt, (text, stopped) in zip(DEMO_PROMPTS, answerer.texts(DEMO_PROMPTS, 300)):
        print(f"  {prompt}\n    {text}{'' if stopped else '  [does not stop]'}")

    held_out = corpus.HELD_OUT_SUM_WORDINGS
    for label, wording in (
        ("one-digit sums, a+b", "What is {a}+{b}?"),
        ("one-digit sums, wording never seen", None),
    ):
        cases = [
            sum_case(wording or held_out[(a + b) % len(held_out)], a, b)
            for a in range(10)
            for b in range(10)
        ]
        report(label, score(answerer, label, cases, failures), len(cases))
    pairs = corpus.held_out_sums()
    for label, wordings in (
        ("two-digit sums never seen, a+b", ["What is {a}+{b}?"]),
        ("two-digit sums never seen, other wordings", corpus.SUM_WORDINGS),
        ("two-digit sums and wording never seen", held_out),
    ):
        cases = [sum_case(wordings[i % len(wordings)], a, b) for i, (a, b) in enumerate(pairs)]
        report(label, score(answerer, label, cases, failures), len(cases))

    rng = random.Random(99)
    drawn = [(rng.randrange(100, 1000), rng.randrange(100, 1000)) for _ in range(100)]
    cases = [sum_case("What is {a}+{b}?", a, b) for a, b in drawn]
    report(
        "three-digit sums, drawn at random",
        score(answerer, "three-digit sums", cases, failures),
        len(cases),
    )
    drawn = [sorted((rng.randrange(100), rng.randrange(100)), reverse=True) for _ in range(100)]
    cases = [
        (f"What is {a}-{b}?", lambda text, a=a, b=b: text == f"{a} - {b} = {a - b}.")
        for a, b in drawn
    ]
    report(
        "differences below 100, drawn at random",
        score(answerer, "differences", cases, failures),
        len(cases),
    )
    cases = [
        (f"What is {a} times {b}?", lambda text, a=a, b=b: text == f"{a} x {b} = {a * b}.")
        for a in range(1, 11)
        for b in range(1, 11)
    ]
    report("products up to 10 x 10", score(answerer, "products", cases, failures), len(cases))

    groups = everyday_cases()
    total = right = 0
    for group, cases in groups.items():
        good = score(answerer, group, cases, failures, 80)
        print(f"    {group:30s} {good:4d} of {len(cases):4d}", flush=True)
        total, right = total + len(cases), right + good
    report("everyday questions, wording never seen", right, total)
    cases = [(careless(prompt), judge) for group in groups.values() for prompt, judge in group]
    report(
        "the same in lower case, unpunctuated",
        score(answerer, "careless", cases, failures, 80),
        len(cases),
    )
    cases = term_cases()
    report(
        "terms of the course, wording never seen",
        score(answerer, "terms", cases, failures),
        len(cases),
    )

    pairs = sorted(stories.held_out_pairs(), key=lambda pair: stories.stable_hash("story", *pair))[
        : arguments.stories
    ]
    prompts = []
    for i, (hero, thing) in enumerate(pairs):
        wording = (
            stories.PROMPTS[0]
            if i % 2 == 0
            else stories.HELD_OUT_PROMPTS[(i // 2) % len(stories.HELD_OUT_PROMPTS)]
        )
        prompts.append(wording.format(a=stories.article(hero), b=stories.article(thing)))
    told = answerer(prompts, 320, batch=128)
    ids = [row for row, _ in told]
    texts = [answerer.tokenizer.decode(row) for row in ids]
    lengths = sorted(map(len, ids))
    report("stories that stop by themselves", sum(stopped for _, stopped in told), len(told))
    report("stories of 150 to 300 tokens", sum(150 <= n <= 300 for n in lengths), len(told))
    both = sum(
        thing in text.lower()
        and (stories.HEROES[hero][1].split("{")[0].split(" who")[0] in text or hero in text.lower())
        for (hero, thing), text in zip(pairs, texts)
    )
    report("stories with both topics", both, len(told))
    print(f"story tokens: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}")
    print(f"longest run of tokens shared by two of {len(told)} stories: {longest_shared_run(ids)}")
    print(f"evaluated in {time.time() - began:.0f} s")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(
                {"failures": failures, "stories": list(zip(prompts, texts))},
                file,
                indent=1,
                ensure_ascii=False,
            )


if __name__ == "__main__":
    main()
