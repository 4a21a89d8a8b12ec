#!/usr/bin/env python3
"""Quotes source code in the documentation, and checks that page and source agree.

In a source file, comment lines mark what a page quotes (the marks themselves are not shown):

    // tag::reduce[]
    ...
    // end::reduce[]

In a page, the quotation stands between two marks:

    <!-- quote: lessons/04_rmsnorm/rmsnorm.cu#reduce -->
    ```cpp
    ...
    ```
    <!-- end quote -->

What a lesson's exercise leaves to the learner is not shown in the open: a mark stands there, and what
belongs in its place is folded below.

    quote.py --write [PAGE ...]   fills the quotations in
    quote.py --check [PAGE ...]   fails when one differs from its source

Without pages: README.md and all of docs/.
"""

import argparse
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUOTE = re.compile(
    r"^<!-- quote: (?P<path>[^#\s]+)#(?P<tag>[\w-]+) -->\n(?P<body>.*?)^<!-- end quote -->$",
    re.MULTILINE | re.DOTALL,
)
TAG_LINE = re.compile(r"^\s*(?://|#) (tag|end)::([\w-]+)\[\]\s*$")
MARKS = re.compile(r"^\s*// (exercise: |starter:|end exercise)")
YOURS = "// (yours to write: the exercise)"
FOLDED = "<details><summary>What we wrote there, for when yours passes</summary>"
ALL_FOLDED = "<details><summary>The code, for when yours passes</summary>"
LANGUAGE = {".cu": "cuda", ".cuh": "cuda", ".cc": "cpp", ".h": "cpp", ".py": "python", ".bzl": "python"}


class QuoteError(Exception):
    pass


def dedented(lines):
    """Preprocessor lines (#pragma) stay at the margin, and tell nothing of where the others begin."""
    code = textwrap.dedent("\n".join(line for line in lines if not line.startswith("#"))).split("\n")
    code = iter(code)
    return "\n".join(line if line.startswith("#") else next(code) for line in lines).strip("\n")


def tagged(path, tag):
    """The lines between tag::tag[] and end::tag[] of a source file, dedented, without instructions to
    the learner: what a page shows, where a mark stands for what the learner is to write, and what
    that is ("" where it is nothing)."""
    source = ROOT / path
    if not source.is_file():
        raise QuoteError(f"{path}: no such file")
    shown, solution, inside, found = [], [], False, False
    in_exercise = instructions = marked = False
    for number, line in enumerate(source.read_text().splitlines(), 1):
        mark = TAG_LINE.match(line)
        if mark:
            if mark[2] == tag:
                if (mark[1] == "tag") == inside:
                    raise QuoteError(f"{path}:{number}: {mark[1]}::{tag}[] out of place")
                inside = mark[1] == "tag"
                if inside and found:
                    shown.append("...")
                found = True
            continue
        if MARKS.match(line):
            instructions = "// exercise: " in line
            in_exercise = "// end exercise" not in line
            marked = marked and in_exercise
            continue
        if instructions and line.strip().startswith("//"):
            continue
        instructions = False
        if not inside:
            continue
        if not in_exercise:
            shown.append(line)
            continue
        if not marked and not line.startswith("#"):
            shown.append(line[: len(line) - len(line.lstrip())] + YOURS)
            marked = True
        solution.append(line)
    if inside:
        raise QuoteError(f"{path}: tag::{tag}[] has no end::{tag}[]")
    if not found:
        raise QuoteError(f"{path}: no tag::{tag}[]")

    return dedented(shown), dedented(solution)


def block(path, tag):
    language = LANGUAGE.get(pathlib.Path(path).suffix, "")
    shown, solution = tagged(path, tag)
    open_block = f"```{language}\n{shown}\n```\n"
    if not solution:
        return open_block
    folded = f"```{language}\n{solution}\n```\n\n</details>\n"
    return f"{ALL_FOLDED}\n\n{folded}" if shown == YOURS else f"{open_block}\n{FOLDED}\n\n{folded}"


def process(page, write):
    text = page.read_text()
    name = page.relative_to(ROOT)
    problems = []

    def replace(match):
        try:
            wanted = block(match["path"], match["tag"])
        except QuoteError as error:
            problems.append(f"{name}: {error}")
            return match[0]
        if match["body"] != wanted and not write:
            line = text.count("\n", 0, match.start()) + 1
            problems.append(
                f"{name}:{line}: differs from {match['path']}#{match['tag']}; "
                "run: python3 tools/docs/quote.py --write"
            )
        return f"<!-- quote: {match['path']}#{match['tag']} -->\n{wanted}<!-- end quote -->"

    result = QUOTE.sub(replace, text)
    opened = len(re.findall(r"^<!-- quote:", text, re.MULTILINE))
    if opened != len(QUOTE.findall(text)):
        problems.append(f"{name}: {opened} quotations begin, {len(QUOTE.findall(text))} are well formed")
    if write and result != text:
        page.write_text(result)
    return opened, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    if not pages:
        pages = [ROOT / "README.md"] + sorted((ROOT / "docs").rglob("*.md"))
    count, problems = 0, []
    for page in pages:
        quotations, found = process(page, arguments.write)
        count += quotations
        problems += found
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{count} quotations on {len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
