"""cuda_library and cuda_test: one .cu source, two backends.

On backend cuda nvcc compiles it. On backend cpu //common/simulator:cu2cpp rewrites its launches and
shared-memory declarations, and g++ compiles the result against the simulator's headers.
"""

load("@local_cuda//:defs.bzl", "CUDA")
load("//bazel:flags.bzl", "StringFlagInfo")

# Without a GPU to ask: machine code for Ampere and Hopper, and PTX for what comes after them.
_DEFAULT_ARCHITECTURES = "sm_80,sm_90,compute_90"

def _architecture_flags(value):
    """"sm_90,compute_90" as nvcc's -gencode options."""
    if value == "default":
        value = CUDA.gpu if CUDA.gpu and CUDA.gpu != "unknown" else _DEFAULT_ARCHITECTURES
    return [
        "-gencode=arch=compute_%s,code=%s" % (architecture.split("_")[1], architecture)
        for architecture in value.split(",")
    ]

_MODE_FLAGS = {
    "dbg": ["-O0", "-g", "-G"],
    "fastbuild": ["-O1", "-lineinfo"],
    "opt": ["-O3", "-DNDEBUG", "-lineinfo"],
}

def _nvcc_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    architectures = ctx.attr.architectures or _architecture_flags(ctx.attr._arch[StringFlagInfo].value)

    # nvcc knows its toolkit's headers; as inputs they would cost two thousand sandbox links a file.
    headers = [h for h in context.headers.to_list() if not h.short_path.startswith("../local_cuda/")]
    objects = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, source.basename[:-len(".cu")]))
        arguments = ctx.actions.args()
        arguments.add_all(["-std=c++17", "-ccbin", CUDA.host_compiler, "-Xcompiler", "-fPIC,-Wall"])
        arguments.add_all(architectures)
        arguments.add_all(_MODE_FLAGS[ctx.var["COMPILATION_MODE"]])
        arguments.add_all([".", ctx.bin_dir.path], format_each = "-I%s")
        arguments.add_all(context.defines, format_each = "-D%s")
        if ctx.attr.quiet:
            arguments.add("-w")
        if ctx.attr.may_leave_unused:
            arguments.add("-diag-suppress=177")
        arguments.add_all(["-c", source, "-o", object])
        ctx.actions.run(
            executable = CUDA.root + "/bin/nvcc",
            arguments = [arguments],
            inputs = [source] + ctx.files.hdrs + headers,
            outputs = [object],
            env = {
                "CUDA_VERSION": CUDA.version,  # so that a new toolkit means a new action
                "PATH": CUDA.root + "/bin:/usr/local/bin:/usr/bin:/bin",
                "TMPDIR": "/tmp",
            },
            mnemonic = "NvccCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_nvcc = rule(
    implementation = _nvcc_impl,
    attrs = {
        "architectures": attr.string_list(doc = "-gencode options in place of --//:cuda_arch"),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "may_leave_unused": attr.bool(doc = "no warnings of what is declared and never used"),
        "quiet": attr.bool(doc = "no warnings"),
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_arch": attr.label(default = "//:cuda_arch"),
    },
)

def _translated_impl(ctx):
    outputs = []
    for source in ctx.files.srcs:
        output = ctx.actions.declare_file("_cpu/%s/%s.cc" % (ctx.label.name, source.basename[:-len(".cu")]))
        ctx.actions.run(
            executable = ctx.executable._translator,
            arguments = [source.path, output.path],
            inputs = [source],
            outputs = [output],
            mnemonic = "CuToCpp",
            progress_message = "Translating %s for the simulator" % source.short_path,
        )
        outputs.append(output)
    return [DefaultInfo(files = depset(outputs))]

_translated = rule(
    implementation = _translated_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_translator": attr.label(
            default = "//common/simulator:cu2cpp",
            executable = True,
            cfg = "exec",
        ),
    },
)

# target_compatible_with of what makes no sense on a GPU.
SIMULATOR_ONLY = select({
    "//:cuda": ["@platforms//:incompatible"],
    "//conditions:default": [],
})

# target_compatible_with of what counts accesses: AddressSanitizer takes the hooks' place.
COUNTED_ONLY = select({
    "//:asan": ["@platforms//:incompatible"],
    "//:cuda": ["@platforms//:incompatible"],
    "//conditions:default": [],
})

# target_compatible_with of what needs the race detector: elsewhere it would check nothing.
RACE_DETECTOR_ONLY = select({
    "//:check": [],
    "//:race": [],
    "//conditions:default": ["@platforms//:incompatible"],
})

# The same, for what the memory checker finds.
MEMORY_CHECKER_ONLY = select({
    "//:check": [],
    "//conditions:default": ["@platforms//:incompatible"],
})

# A call before each access to memory, and where an address is misaligned or an index beyond its
# array. common/simulator/access_hooks.cc and bounds_hooks.cc have the functions that are called; the
# sanitizers' libraries are not linked.
_HOOKS_COPTS = [
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds",
    # What -O2 adds moves accesses away from their lines, and a call at a function's end would return
    # to the caller's.
    "-O1",
    "-fno-optimize-sibling-calls",
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
    "-U_FORTIFY_SOURCE",  # it hides calls of memcpy
    "-Wno-tsan",
    # Loads and stores as the source has them, for the statistics: none joined, none taken apart.
    "-fno-tree-sra",
    "-fno-tree-vectorize",
    "-fno-store-merging",
    "-fno-tree-loop-distribute-patterns",
]

def cuda_library(name, srcs, hdrs = [], deps = [], architectures = [], copts = [], counted = False, check_indices = False, **kwargs):
    """A C++ library some of whose sources are .cu files.

    Args:
      name: the target.
      srcs: .cu files (with kernels and launches) and .cc files.
      hdrs: headers; .cuh for device functions. No launches and no __shared__ in them.
      deps: cc_library and cuda_library targets; //common/cuda:runtime is always among them.
      architectures: nvcc -gencode options for these sources alone, for code that needs one GPU.
      copts: for g++; -w and -Wno-unused-variable silence nvcc as well.
      counted: also make the twin name.counted, for what shows the simulator's statistics: on the
        simulator the same sources, with a hook before each access to memory; elsewhere the library
        itself.
      check_indices: report an index beyond an array's length in the plain build of the simulator,
        too, as --config=check does. For code that is being learned with: written behind a
        __shared__ array, the program would end somewhere else, without a word.
      **kwargs: for the cc_library.
    """
    cu = [source for source in srcs if source.endswith(".cu")]
    cc = [source for source in srcs if not source.endswith(".cu")]
    deps = deps + ["//common/cuda:runtime"]
    testonly = kwargs.get("testonly", False)
    tags = kwargs.get("tags", [])
    _nvcc(
        name = name + ".nvcc",
        srcs = cu,
        hdrs = hdrs,
        architectures = architectures,
        may_leave_unused = "-Wno-unused-variable" in copts,
        quiet = "-w" in copts,
        deps = deps,
        tags = ["manual"],
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    _translated(
        name = name + ".cpu",
        srcs = cu,
        tags = ["manual"],
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = cc + select({
            "//:cuda": [":" + name + ".nvcc"],
            "//conditions:default": [":" + name + ".cpu"],
        }),
        hdrs = hdrs,
        # Kernels read four floats as a float4, eight bf16 as a uint4; nvcc takes that as it is meant.
        # -g1: lines, for what the simulator reports.
        copts = copts + ["-fno-strict-aliasing", "-g1"] + select({
            "//:asan": [],  # has it
            "//:cuda": [],
            "//:instrumented_kernels": _HOOKS_COPTS,
            "//conditions:default": ["-fsanitize=bounds"] if check_indices else [],
        }),
        deps = deps + select({
            "//:asan": [],
            "//:cuda": [],
            "//:instrumented_kernels": ["//common/simulator:access_hooks"],
            "//conditions:default": ["//common/simulator:bounds_hooks"] if check_indices else [],
        }),
        linkstatic = True,
        **kwargs
    )
    if counted:
        native.cc_library(
            name = name + ".with_hooks",
            srcs = cc + [":" + name + ".cpu"],
            hdrs = hdrs,
            copts = copts + ["-fno-strict-aliasing", "-g1"] + _HOOKS_COPTS,
            deps = deps + ["//common/simulator:access_hooks"],
            linkstatic = True,
            **dict(kwargs, tags = tags + ["manual"], visibility = ["//visibility:private"])
        )
        native.alias(
            name = name + ".counted",
            actual = select({
                "//:cuda": ":" + name,
                "//:asan": ":" + name,  # no code can have the hooks of two sanitizers
                "//:instrumented_kernels": ":" + name,
                "//conditions:default": ":" + name + ".with_hooks",
            }),
            tags = tags,  # manual, where the library is: //... takes an alias otherwise
            testonly = testonly,
            visibility = kwargs.get("visibility"),
        )

def cuda_test(name, srcs, deps = [], tags = [], counted = False, check_indices = False, **kwargs):
    """A GoogleTest whose source is a .cu file, for checks that launch kernels of their own.

    Args:
      name: the target.
      srcs: .cu files.
      deps: as for cuda_library.
      tags: for the cc_test.
      counted: link the twin that calls the simulator's hooks.
      check_indices: as for cuda_library.
      **kwargs: for the cc_test.
    """
    cuda_library(
        name = name + ".kernels",
        srcs = srcs,
        deps = deps + ["@googletest//:gtest"],
        alwayslink = True,
        check_indices = check_indices,
        counted = counted,
        tags = ["manual"],
        testonly = True,
    )
    native.cc_test(
        name = name,
        deps = [
            ":%s.kernels%s" % (name, ".counted" if counted else ""),
            "@googletest//:gtest_main",
        ],
        linkstatic = True,
        tags = tags,
        **kwargs
    )
