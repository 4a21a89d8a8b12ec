"""Writes compile_commands.json from Bazel's action graph, so that editors know every flag."""

import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.environ["BUILD_WORKSPACE_DIRECTORY"]
BAZEL = shutil.which("bazel") or shutil.which("bazelisk")


def bazel(*arguments):
    return subprocess.run([BAZEL, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def original(source):
    """The .cu file that a translated .cc was made from; other sources as they are."""
    translated = re.match(r"bazel-out/[^/]+/bin/(.*)/_cpu/[^/]+/([^/]+)\.cc$", source)
    return f"{translated[1]}/{translated[2]}.cu" if translated else source


def main():
    external = bazel("info", "output_base").strip() + "/external/"
    query = 'mnemonic("CppCompile|NvccCompile", //...)'
    graph = json.loads(bazel("aquery", *sys.argv[1:], "--output=jsonproto", query))
    commands = {}
    for action in graph.get("actions", []):
        arguments = action["arguments"]
        if "-c" not in arguments:
            continue
        source = arguments[arguments.index("-c") + 1]
        file = original(source)
        if file in commands or file.startswith(("external/", "bazel-out/")):
            continue
        arguments = [re.sub(r"^(-I|-isystem|-iquote)?external/", lambda m: (m[1] or "") + external, a) for a in arguments]
        if file != source:  # a .cu for the simulator: clangd shall read it as C++
            arguments = [file if a == source else a for a in arguments]
            arguments[1:1] = ["-x", "c++"]
        commands[file] = {"directory": ROOT, "file": file, "arguments": arguments}
    with open(os.path.join(ROOT, "compile_commands.json"), "w") as out:
        json.dump(sorted(commands.values(), key=lambda c: c["file"]), out, indent=1)
    print(f"compile_commands.json: {len(commands)} files")


main()
