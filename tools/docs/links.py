#!/usr/bin/env python3
"""Checks the links of the documentation that stay inside the repository.

Every relative link and image of a page must lead to a file or folder that exists, every #anchor to
a heading of that page; likewise each "docs/page.md#heading" that a C++ file tells its reader. Links
to the web are not followed.

    links.py [FILE ...]     without files: every .md and C++ file that git knows
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
IN_CODE = re.compile(r"\bdocs/\w+\.md#[\w-]+")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|<img\s[^>]*src=\"([^\"]+)\"")


def blank(match):
    """Spaces in place of code, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", FENCE.sub(blank, page.read_text()), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 1
        anchor = text
        while anchor in found:
            anchor = f"{text}-{number}"
            number += 1
        found.add(anchor)
    return found


def leads(link, target, anchor):
    """What is wrong with a link to a file and a heading of it; None if nothing is."""
    if not target.exists() or ROOT not in [target, *target.parents]:
        return f"{link} leads nowhere"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: no such heading"
    return None


def problems_of_code(source):
    text = source.read_text()
    for match in IN_CODE.finditer(text):
        path, _, anchor = match[0].partition("#")
        if problem := leads(match[0], ROOT / path, anchor):
            yield f"{source.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {problem}"


def problems(page):
    if page.suffix != ".md":
        yield from problems_of_code(page)
        return
    text = CODE.sub(blank, FENCE.sub(blank, page.read_text()))
    for match in LINK.finditer(text):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        where = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if problem := leads(link, target, anchor):
            yield f"{where}: {problem}"


def main():
    pages = [pathlib.Path(argument).resolve() for argument in sys.argv[1:]]
    if not pages:
        listed = subprocess.run(
            ["git", "ls-files", "*.md", "*.h", "*.cc", "*.cu", "*.cuh"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        pages = [ROOT / line for line in listed.stdout.splitlines()]
    found = [problem for page in pages for problem in problems(page)]
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(pages)} files, {len(found)} links that lead nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
