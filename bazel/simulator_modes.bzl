"""The same checks under other settings of the simulator.

mode_tests(name = "04_reduce_test", modes = ["reverse", "warp64"], ...) makes 04_reduce_test_reverse
and 04_reduce_test_warp64.
"""

load("//bazel:cuda.bzl", "SIMULATOR_ONLY")

# docs/simulator.md says what each variable does.
MODES = {
    "lazy": {"TINYVLLM_SIM_LAZY_STREAMS": "1"},
    "reverse": {"TINYVLLM_SIM_ORDER": "reverse"},
    "shuffle": {"TINYVLLM_SIM_ORDER": "shuffle:1"},
    # AMD's wavefronts have 64 lanes.
    "warp64": {
        "TINYVLLM_SIM_ORDER": "shuffle:2",
        "TINYVLLM_SIM_WARP_SIZE": "64",
    },
}

def mode_tests(
        name,
        deps,
        modes = MODES.keys(),
        srcs = [],
        size = "small",
        tags = [],
        target_compatible_with = SIMULATOR_ONLY):
    """See the top of this file.

    Args:
      name: what the tests' names begin with.
      deps: what the checks need; without srcs, among it a library that holds them, such as the
        .kernels of a cuda_test.
      modes: some of MODES.
      srcs: the checks. They are compiled once for all modes.
      size: as for cc_test.
      tags: as for cc_test.
      target_compatible_with: as for cc_test.
    """
    if srcs:
        native.cc_library(
            name = name + ".checks",
            testonly = True,
            srcs = srcs,
            linkstatic = True,
            tags = ["manual"],
            deps = deps + ["@googletest//:gtest"],
            alwayslink = True,
        )
        deps = [":" + name + ".checks"]
    for mode in modes:
        native.cc_test(
            name = "%s_%s" % (name, mode),
            size = size,
            env = MODES[mode],
            linkstatic = True,
            tags = tags,
            target_compatible_with = target_compatible_with,
            deps = deps + ["@googletest//:gtest_main"],
        )
