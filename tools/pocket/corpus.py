"""The training corpus: chats made by a seeded program, and the questions kept for the evaluation.

What the evaluation asks is never in the corpus by construction: sums of held-out pairs, held-out
wordings of everyday questions and of course terms, and held-out pairs of story topics.
"""

import random

import everyday
import stories
import terms

# ---- Sums -----------------------------------------------------------------------------------

SUM_WORDINGS = [
    "What is {a}+{b}?",
    "What is {a} + {b}?",
    "What's {a}+{b}?",
    "What is {a} plus {b}?",
    "How much is {a} plus {b}?",
    "How much is {a}+{b}?",
    "How much is {a} + {b}?",
    "{a}+{b}",
    "{a} + {b}",
    "{a}+{b}=",
    "{a} + {b} =",
    "{a} + {b} = ?",
    "{a}+{b}=?",
    "Add {a} and {b}.",
    "Add {a} to {b}.",
    "What is the sum of {a} and {b}?",
    "Calculate {a}+{b}.",
    "Calculate {a} + {b}.",
    "Compute {a} + {b}.",
    "{a} plus {b}?",
    "{a} plus {b} is what?",
    "What do {a} and {b} make?",
    "Sum of {a} and {b}?",
    "Can you add {a} and {b}?",
    "What do you get when you add {a} and {b}?",
    "{a} and {b} make how much?",
    "Please add {a} and {b}.",
    "Tell me {a} + {b}.",
    "What does {a} + {b} equal?",
    "What is {a} added to {b}?",
    "If I add {a} and {b}, what do I get?",
    "Work out {a} + {b}.",
    "Solve {a} + {b}.",
    "What does {a} plus {b} give?",
    "What is {a} and {b} together?",
    "What's {a} plus {b}?",
    "Find {a}+{b}.",
    "How many are {a} and {b}?",
]
HELD_OUT_SUM_WORDINGS = [
    "Could you tell me what {a} + {b} is?",
    "Please calculate the sum of {a} and {b}.",
    "How much do {a} and {b} make?",
    "I need the sum {a} + {b}.",
]
WORD_PROBLEMS = [
    ("I have {a} {o} and get {b} more. How many {o} do I have?", "You have {c} {o}."),
    ("I have {a} {o}. You give me {b} more. How many do I have?", "You have {c} {o}."),
    ("{n} has {a} {o} and buys {b} more. How many {o} does {n} have?", "{n} has {c} {o}."),
    (
        "There are {a} {o} in one box and {b} in another. How many {o} are there?",
        "There are {c} {o}.",
    ),
    ("{n} finds {a} {o} and then {b} more. How many {o} is that?", "That is {c} {o}."),
]
OBJECTS = [
    "apples",
    "books",
    "coins",
    "pencils",
    "stones",
    "eggs",
    "cards",
    "shells",
    "toys",
    "nuts",
    "stamps",
    "balls",
]
PEOPLE = ["Tom", "Anna", "Ben", "Lena", "Sam", "Mia", "Paul", "Nora", "Max", "Eva"]


def is_held_out_sum(a, b):
    """True for pairs of two-digit numbers kept for the evaluation, in both orders."""
    if a < 10 or b < 10 or a > 99 or b > 99:
        return False
    return stories.stable_hash("sum", str(min(a, b)), str(max(a, b))) % 100 < 12


def held_out_sums():
    return [(a, b) for a in range(10, 100) for b in range(10, 100) if is_held_out_sum(a, b)]


def sum_answer(a, b):
    return f"{a} + {b} = {a + b}."


def arithmetic(rng):
    kind = rng.random()
    if kind < 0.26:
        a, b = rng.randrange(10), rng.randrange(10)
    elif kind < 0.70:
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
    elif kind < 0.78:
        a, b = rng.randrange(10), rng.randrange(100)
        if rng.random() < 0.5:
            a, b = b, a
    elif kind < 0.84:
        a, b = rng.randrange(100, 1000), rng.randrange(1, 1000)
        if rng.random() < 0.3:
            a, b = b, a
    elif kind < 0.93:
        a, b = rng.randrange(100), rng.randrange(100)
        if a < b and rng.random() < 0.9:
            a, b = b, a
        if rng.random() < 0.4:
            a, b = sorted((rng.randrange(20), rng.randrange(20)), reverse=True)
        wording = rng.choice(
            [
                "What is {a}-{b}?",
                "What is {a} - {b}?",
                "What is {a} minus {b}?",
                "How much is {a} minus {b}?",
                "{a}-{b}",
                "{a} - {b} =",
                "{a}-{b}=?",
                "Subtract {b} from {a}.",
                "Take {b} away from {a}.",
                "Calculate {a} - {b}.",
                "What's {a}-{b}?",
                "What's {a} minus {b}?",
                "What is the difference of {a} and {b}?",
                "How much is {a}-{b}?",
            ]
        )
        return wording.format(a=a, b=b), f"{a} - {b} = {a - b}."
    elif kind < 0.975:
        a, b = rng.randrange(13), rng.randrange(13)
        wording = rng.choice(
            [
                "What is {a} times {b}?",
                "What is {a}*{b}?",
                "What is {a} * {b}?",
                "What is {a} x {b}?",
                "How much is {a} times {b}?",
                "{a}*{b}",
                "{a} * {b} =",
                "{a}x{b}=?",
                "Multiply {a} and {b}.",
                "Multiply {a} by {b}.",
                "What's {a} times {b}?",
                "Calculate {a} * {b}.",
                "What is the product of {a} and {b}?",
                "How much is {a}*{b}?",
            ]
        )
        return wording.format(a=a, b=b), f"{a} x {b} = {a * b}."
    else:
        b, c = rng.randrange(1, 13), rng.randrange(13)
        wording = rng.choice(
            [
                "What is {a} divided by {b}?",
                "What is {a}/{b}?",
                "What is {a} / {b}?",
                "How much is {a} divided by {b}?",
                "Divide {a} by {b}.",
                "{a}/{b}",
                "{a} / {b} =",
            ]
        )
        return wording.format(a=b * c, b=b), f"{b * c} / {b} = {c}."
    if kind < 0.03:  # three numbers
        numbers = [rng.randrange(10) for _ in range(3)]
        wording = rng.choice(
            [
                "What is {s}?",
                "{s}",
                "{s} =",
                "Add {l}.",
                "How much is {s}?",
                "What is the sum of {l}?",
                "Calculate {s}.",
                "What's {s}?",
            ]
        )
        joint = rng.choice([" + ", "+"])
        text = wording.format(s=joint.join(map(str, numbers)), l="{}, {} and {}".format(*numbers))
        return text, " + ".join(map(str, numbers)) + f" = {sum(numbers)}."
    while is_held_out_sum(a, b):
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
    style = rng.random()
    if style < 0.06:
        wording, answer = rng.choice(WORD_PROBLEMS)
        slots = dict(a=a, b=b, c=a + b, o=rng.choice(OBJECTS), n=rng.choice(PEOPLE))
        return wording.format(**slots), answer.format(**slots)
    wording = rng.choice(SUM_WORDINGS)
    if style < 0.12 and a <= 20 and b <= 20:
        words = dict(a=everyday.NUMBER_WORDS[a], b=everyday.NUMBER_WORDS[b])
        return everyday.upper_first(wording.format(**words)), sum_answer(a, b)
    return wording.format(a=a, b=b), sum_answer(a, b)


# ---- Other exchanges ------------------------------------------------------------------------

FAMILIES = everyday.families()
FAMILY_WEIGHTS = []
for _family in FAMILIES:
    FAMILY_WEIGHTS.append(_family.weight + (FAMILY_WEIGHTS[-1] if FAMILY_WEIGHTS else 0.0))
FOLLOW_UPS = {
    "color": "{t}",
    "capital": "{c}",
    "opposite": "{w}",
    "sound": "{a}",
    "legs": "{a}",
    "food": "{a}",
}
FOLLOW_UP_WORDINGS = [
    "And {x}?",
    "What about {x}?",
    "How about {x}?",
    "And of {x}?",
    "{x}?",
    "And what about {x}?",
    "Now {x}.",
]


def fill(wording, slots):
    return everyday.upper_first(wording.format(**slots))


def everyday_exchange(rng):
    """A question, its answer, and the family, so that a follow-up can be asked."""
    family = rng.choices(FAMILIES, cum_weights=FAMILY_WEIGHTS)[0]
    slots, answer, _ = rng.choice(family.items)
    return fill(rng.choice(family.train), slots), answer, family


def follow_up(rng, family):
    slots, answer, _ = rng.choice(family.items)
    subject = FOLLOW_UPS[family.name].format(**slots)
    return everyday.upper_first(rng.choice(FOLLOW_UP_WORDINGS).format(x=subject)), answer


def term_slots(entry, name):
    names, art, _ = entry
    if name != names[0] and art in ("a", "an"):
        art = (
            "an"
            if name[0].lower() in "aeiou" or name in ("SM", "LLM", "MLP", "EOS token", "eot token")
            else "a"
        )
        if name.endswith("s") or name in (
            "__syncthreads",
            "syncthreads",
            "tiling",
            "coalescing",
            "fusion",
            "OOM",
        ):
            art = ""
    return {"a": f"{art} {name}".strip(), "n": name}


def term_exchange(rng):
    if rng.random() < 0.08:
        x, y, answer = rng.choice(terms.DIFFERENCES)
        if rng.random() < 0.3:
            x, y = y, x
        return everyday.upper_first(rng.choice(terms.DIFFERENCE_QUESTIONS).format(x, y)), answer
    entry = rng.choice(terms.TERMS)
    name = entry[0][0] if rng.random() < 0.55 else rng.choice(entry[0])
    return fill(rng.choice(terms.QUESTIONS), term_slots(entry, name)), entry[2]


def small_talk(rng):
    said, reply = rng.choice(everyday.SMALL_TALK)
    return rng.choice(said), reply


def unknown(rng):
    slots = {name: rng.choice(values) for name, values in everyday.UNKNOWN_SLOTS.items()}
    return rng.choice(everyday.UNKNOWN_QUESTIONS).format(**slots), everyday.UNKNOWN_ANSWER


# ---- How people type ------------------------------------------------------------------------

PREFIXES = [
    "Hello! ",
    "Hi! ",
    "Hey, ",
    "Quick question: ",
    "Question: ",
    "Please: ",
    "Tell me: ",
    "I have a question. ",
    "Excuse me, ",
    "One more: ",
    "Hi, ",
    "So, ",
    "OK, ",
    "Hello, ",
    "Please answer: ",
    "Well, ",
]
SUFFIXES = [
    " Thanks!",
    " Thank you.",
    " please",
    ", please",
    " Please.",
    " Please answer briefly.",
    " Thank you!",
    " Be brief.",
]


def misspell(rng, text):
    words = text.split(" ")
    long_words = [i for i, w in enumerate(words) if len(w) >= 5 and w.isalpha()]
    if not long_words:
        return text
    i = rng.choice(long_words)
    w = words[i]
    k = rng.randrange(1, len(w) - 1)
    words[i] = w[:k] + w[k + 1] + w[k] + w[k + 2 :] if rng.random() < 0.5 else w[:k] + w[k + 1 :]
    return " ".join(words)


def as_typed(rng, text, exact=0.42):
    """The question as one of many people would type it."""
    if rng.random() < exact:
        return text
    if rng.random() < 0.12 and not text[0].isdigit():
        prefix = rng.choice(PREFIXES)
        if prefix.endswith(", ") and not text.startswith("I "):
            text = text[0].lower() + text[1:]
        text = prefix + text
    if rng.random() < 0.08 and text[-1] in ".?":
        suffix = rng.choice(SUFFIXES)
        if suffix[-1] in "se":  # "... please" goes before the mark
            text = text[:-1] + suffix + text[-1]
        else:
            text = text + suffix
    if rng.random() < 0.10:
        text = text.replace("color", "colour")
    if rng.random() < 0.10:
        text = text.replace("What is", rng.choice(["What's", "Whats", "what is", "WHAT IS"]))
    if rng.random() < 0.35:
        text = text.lower()
    elif rng.random() < 0.02:
        text = text.upper()
    if rng.random() < 0.35 and text[-1] in ".?!":
        text = text[:-1]
    if rng.random() < 0.05:
        text = misspell(rng, text)
    if rng.random() < 0.02:
        text = text + rng.choice(["?", "!", "??", " ?", "...", "!!"])
    return text


# ---- Documents ------------------------------------------------------------------------------


def exchange(rng, allow_story):
    kind = rng.random()
    if kind < 0.33:
        return (*arithmetic(rng), None)
    if kind < 0.62:
        return everyday_exchange(rng)
    if kind < 0.78:
        return (*term_exchange(rng), None)
    if kind < 0.83:
        return (*small_talk(rng), None)
    if kind < 0.85:
        return (*unknown(rng), None)
    if allow_story:
        return (*stories.story_chat(rng), None)
    return (*arithmetic(rng), None)


def document(rng):
    """One chat, as a list of (role, content)."""
    messages = []
    if rng.random() < 0.10:
        messages.append(("system", rng.choice(everyday.SYSTEM_MESSAGES)))
    turns = 1
    if rng.random() < 0.20:
        turns = rng.choice([2, 2, 2, 3, 3, 4, 5, 6, 8])
    if rng.random() < 0.006:
        turns = rng.randrange(12, 25)
    family = None
    had_story = False
    for _ in range(turns):
        if family and family.name in FOLLOW_UPS and rng.random() < 0.5:
            question, answer = follow_up(rng, family)
        else:
            question, answer, family = exchange(rng, not had_story)
            had_story = had_story or len(answer) > 400
        messages.append(("user", as_typed(rng, question)))
        messages.append(("assistant", answer))
    return messages


def documents(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        yield document(rng)
