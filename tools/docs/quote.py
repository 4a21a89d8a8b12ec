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
LANGUAGE = {".cu": "cuda", ".cuh": "cuda", ".cc": "cpp", ".h": "cpp", ".py": "python", ".bzl": "python"}


class QuoteError(Exception):
    pass


def without_exercise_marks(lines):
    """The lines as a reader of the solution wants them: no instructions to the learner."""
    kept, instructions = [], False
    for line in lines:
        if MARKS.match(line):
            instructions = "// exercise: " in line
            continue
        if instructions and line.strip().startswith("//"):
            continue
        instructions = False
        kept.append(line)
    return kept


def tagged(path, tag):
    """The lines between tag::tag[] and end::tag[] of a source file, dedented."""
    source = ROOT / path
    if not source.is_file():
        raise QuoteError(f"{path}: no such file")
    parts, inside = [], False
    for number, line in enumerate(source.read_text().splitlines(), 1):
        mark = TAG_LINE.match(line)
        if mark:
            if mark[2] == tag:
                if (mark[1] == "tag") == inside:
                    raise QuoteError(f"{path}:{number}: {mark[1]}::{tag}[] out of place")
                inside = mark[1] == "tag"
                if inside and parts:
                    parts.append("...")
            continue
        if inside:
            parts.append(line)
    if inside:
        raise QuoteError(f"{path}: tag::{tag}[] has no end::{tag}[]")
    if not parts:
        raise QuoteError(f"{path}: no tag::{tag}[]")
    return textwrap.dedent("\n".join(without_exercise_marks(parts))).strip("\n")


def block(path, tag):
    language = LANGUAGE.get(pathlib.Path(path).suffix, "")
    return f"```{language}\n{tagged(path, tag)}\n```\n"


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
