#!/usr/bin/env python3
"""Fills the documentation with what the programs really print, and checks that it still is so.

In a page, the output of a command stands between two marks:

    <!-- output: bazel run //lessons/04_rmsnorm -->
    ```text
    ...
    ```
    <!-- end output -->

The command may have arguments (after --), environment variables before it and configurations of
.bazelrc (--config=asan). Demos number their sections ("2. A vector add"); to show only some of
them, name them at the end:

    <!-- output: bazel run //lessons/00_first_kernel #2 -->
    <!-- output: bazel run //lessons/06_matmul #2-4 -->

    output.py --write [PAGE ...]   fills the blocks in
    output.py --check [PAGE ...]   fails when one differs from a fresh run
    --config NAME                  only the blocks of this configuration; "plain": those of none

Without pages: README.md and all of docs/. Always on the simulator. What a page shows of times and
the like is what one real run printed; the comparison leaves it out (VARYING, below), and --write
leaves a block alone that differs in nothing else.
"""

import argparse
import collections
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = re.compile(
    r"^<!-- output: (?P<command>[^\n]+?)(?: #(?P<first>\d+)(?:-(?P<last>\d+))?)? -->\n"
    r"```text\n(?P<body>.*?)^```\n<!-- end output -->$",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT_SECONDS = 600

# What differs from run to run and from machine to machine.
NUMBER = r"~?\s?\d[\d,]*(?:\.\d+)?"
VARYING = [re.compile(pattern) for pattern in [
    rf"{NUMBER} (?:ns|us|ms|s|seconds)\b",                   # times
    rf"{NUMBER} (?:[kMG]B/s|tokens/s|tokens a second)",      # rates
    r"\(\d+ CPU threads?\)|\d+ multiprocessors?",            # the machine
    r"[\d.]+ [kMG]B of [\d.]+ [kMG]B free",
    r"0x[0-9a-f]+|==\d+==|\bT\d+\b",                         # addresses, processes, OS threads
    r"\bblock \(\d+,\d+,\d+\)",                            # whichever block errs first
]]
# A table whose header names one of these units varies in that column.
UNIT = re.compile(r"(?<![\w/])(?:ns|us|ms|microseconds|[kMG]B/s|tokens/s)(?![\w/])")
RULE = re.compile(r"─+(?: +─+)*")
VARYING_IN_ROWS = re.compile(r"\d+\.\d+|[█▉▊▋▌▍▎▏░]+")  # of a table without a rule: bars, too


class OutputError(Exception):
    pass


def rows_of(lines):
    """How many lines from the header on are the table: it ends at a blank line, or at prose."""
    ruled = len(lines) > 1 and RULE.fullmatch(lines[1].strip())
    gaps = [i for match in re.finditer(" +", lines[1]) for i in range(*match.span())] if ruled else []
    for number, line in enumerate(lines):
        if not line or (number > 1 and any(line[i : i + 1].strip() for i in gaps)):
            return number
    return len(lines)


def masked_table(lines):
    """Rows under a header with a unit: the columns of such units left out, and the widths."""
    header, rows = lines[0], lines[1:]
    if len(lines) > 1 and RULE.fullmatch(lines[1].strip()):
        columns = [match.span() for match in re.finditer("─+", lines[1])]
        columns[-1] = (columns[-1][0], None)
        varying = [slice(*column) for column in columns if UNIT.search(header[slice(*column)])]
        for column in reversed(varying):
            rows = [row[: column.start] + " ~ " + row[column.stop :] if column.stop
                    else row[: column.start] + " ~" for row in rows]
        rows = [re.sub("─+", "─", row) for row in rows]
    else:
        rows = [VARYING_IN_ROWS.sub("~", row) for row in rows]
    return [re.sub(" +", " ", row).strip() for row in [header] + rows]


def comparable(text):
    """The text without what varies."""
    lines = [line.rstrip() for line in text.splitlines()]
    result, i = [], 0
    while i < len(lines):
        end = i + 1
        ruled = end < len(lines) and RULE.fullmatch(lines[end].strip())
        if UNIT.search(lines[i]) and (ruled or not re.search(r"\d", lines[i])):
            end = i + rows_of(lines[i:])
            if end > i + 1:
                result += masked_table(lines[i:end])
                i = end
                continue
        line = lines[i]
        for pattern in VARYING:
            line = pattern.sub("~", line)
        result.append(re.sub("─+", "─", re.sub(" +", " ", line)))  # addresses change widths, too
        i = end
    return result


def without_library_frames(text):
    """A sanitizer's report as far as it speaks of this repository's code."""
    kept = []
    for line in text.splitlines():
        frame = re.match(r"\s+#\d+ ", line)
        if frame and not re.search(r" (?:lessons|tests|final)/\S+:\d+$", line):
            if kept[-1] != "    ...":
                kept.append("    ...")
        elif line or not re.match(r"\s+(#\d+ |\.\.\.)", kept[-1] if kept else ""):
            kept.append(line)
        if " is located " in line:
            break
    return "\n".join(kept) + "\n"


def section(text, first, last):
    """The numbered sections first to last: from "2. ..." to the next number, or to the farewell."""
    lines = text.splitlines()
    begin = [i for i, line in enumerate(lines) if line.startswith(f"{first}. ")]
    if not begin:
        raise OutputError(f"no line begins with '{first}. '")
    kept = []
    for line in lines[begin[0] :]:
        number = re.match(r"(\d+)\. \S", line)
        if (number and int(number[1]) > last) or line.startswith("The page: docs/"):
            break
        kept.append(line)
    return "\n".join(kept).strip("\n") + "\n"


class Command:
    """`VARIABLE=value bazel run --config=asan //package:name -- arguments`, taken apart."""

    def __init__(self, text):
        words = shlex.split(text)
        self.environment = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            self.environment[name] = value
        if words[:2] != ["bazel", "run"]:
            raise OutputError(f"'{text}' is not a 'bazel run ...'")
        words = words[2:]
        self.configs = []
        while words and words[0].startswith("--config="):
            self.configs.append(words.pop(0)[len("--config=") :])
        match = re.fullmatch(r"//([\w/.]+)(?::([\w.]+))?", words[0] if words else "")
        if not match or words[1:2] not in ([], ["--"]):
            raise OutputError(f"'{text}': expected bazel run [--config=...] //package[:name] [-- ...]")
        self.target = words[0]
        self.binary = f"bazel-bin/{match[1]}/{match[2] or match[1].rsplit('/', 1)[-1]}"
        self.arguments = words[2:]

    def run(self):
        done = subprocess.run(
            [self.binary, *self.arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
            encoding="utf-8",
        )
        if done.returncode != 0 and not self.configs:
            raise OutputError(f"{self.binary} ended with status {done.returncode}:\n{done.stdout}")
        text = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n") + "\n"
        return without_library_frames(text) if "asan" in self.configs else text


def build(commands):
    """All targets of one configuration at once."""
    by_configuration = collections.defaultdict(set)
    for command in commands:
        by_configuration[tuple(command.configs)].add(command.target)
    (configs, targets), = by_configuration.items()
    bazel = shutil.which("bazel") or "./bazelw"
    # A sanitizer's configuration chooses the simulator itself.
    flags = [f"--config={config}" for config in configs or ["cpu"]]
    subprocess.run(
        [bazel, "build", "--noshow_progress", "--show_result=0", "--ui_event_filters=-info", *flags, *sorted(targets)],
        cwd=ROOT,
        check=True,
    )


def difference(body, fresh):
    """The first line where the two part, for the report."""
    old, new = comparable(body), comparable(fresh)
    for i in range(max(len(old), len(new))):
        there = old[i] if i < len(old) else "(nothing)"
        here = new[i] if i < len(new) else "(nothing)"
        if there != here:
            return f"\n    the page:  {there}\n    the run:   {here}"
    return ""


def process(page, outputs, write):
    """Fills or checks the blocks of one page whose commands were run."""
    text = page.read_text()
    name = page.relative_to(ROOT)
    problems = []

    def replace(match):
        fresh = outputs.get(match["command"])
        if fresh is None:
            return match[0]
        try:
            if isinstance(fresh, OutputError):
                raise fresh
            if match["first"]:
                fresh = section(fresh, int(match["first"]), int(match["last"] or match["first"]))
        except OutputError as error:
            problems.append(f"{name}: {match['command']}: {error}")
            return match[0]
        if comparable(match["body"]) == comparable(fresh):
            return match[0]
        if not write:
            line = text.count("\n", 0, match.start()) + 1
            problems.append(
                f"{name}:{line}: differs from what {match['command']} prints; run: "
                f"python3 tools/docs/output.py --write {name}{difference(match['body'], fresh)}"
            )
        start, end = match.start("body") - match.start(), match.end("body") - match.start()
        return match[0][:start] + fresh + match[0][end:]

    result = OUTPUT.sub(replace, text)
    if write and result != text:
        page.write_text(result)
        print(f"{name}: written")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    parser.add_argument("--config", help="only the blocks of this configuration; 'plain': of none")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    if not pages:
        pages = [ROOT / "README.md"] + sorted((ROOT / "docs").rglob("*.md"))

    problems, blocks, commands = [], 0, {}
    for page in pages:
        text = page.read_text()
        found = OUTPUT.findall(text)
        opened = len(re.findall(r"^<!-- output:", text, re.MULTILINE))
        if opened != len(found):
            problems.append(
                f"{page.relative_to(ROOT)}: {opened} outputs begin, {len(found)} are well formed"
            )
        for match in OUTPUT.finditer(text):
            try:
                command = Command(match["command"])
            except OutputError as error:
                problems.append(f"{page.relative_to(ROOT)}: {error}")
                continue
            if arguments.config in (None, ",".join(command.configs) or "plain"):
                commands[match["command"]] = command
                blocks += 1

    outputs = {}
    # One configuration after the other: they take turns in bazel-bin. The plain one comes last, and
    # so it is what stays there.
    for configs in sorted({tuple(command.configs) for command in commands.values()}, reverse=True):
        group = {text: command for text, command in commands.items() if tuple(command.configs) == configs}
        build(group.values())
        for text, command in group.items():
            print(text, flush=True)
            try:
                outputs[text] = command.run()
            except OutputError as error:
                outputs[text] = error
            except subprocess.TimeoutExpired:
                outputs[text] = OutputError(f"still running after {TIMEOUT_SECONDS} s")
    for page in pages:
        problems += process(page, outputs, arguments.write)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{blocks} blocks from {len(commands)} commands, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
