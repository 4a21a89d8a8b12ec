#!/bin/sh
# bazel run //tools:compile_commands [-- --config=cpu]: writes compile_commands.json for clangd.
exec python3 "$BUILD_WORKSPACE_DIRECTORY/tools/compile_commands.py" "$@"
