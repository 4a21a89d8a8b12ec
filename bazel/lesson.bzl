"""A lesson: its library (or the learner's), its demo, and its checks.

lesson(name = "04_rmsnorm", library = "rmsnorm", exercise = "rmsnorm.cu", ...) makes

  //lessons/04_rmsnorm                  the demo
  //lessons/04_rmsnorm:rmsnorm          the library that the engine links: the solution, or, under
                                        --//:exercise=04_rmsnorm, the file in exercise/
  //lessons/04_rmsnorm:rmsnorm.solution
  //lessons/04_rmsnorm:rmsnorm.exercise the learner's file
  //lessons/04_rmsnorm:rmsnorm.starter  the solution with its exercise regions emptied
  //lessons/04_rmsnorm:rmsnorm.counted  if counted = True: rmsnorm, or its twin with the simulator's
                                        hooks (see cuda_library), which the demo then links
"""

load("//bazel:cuda.bzl", "cuda_library")
load("//bazel:flags.bzl", "UNKNOWN_EXERCISE", "exercise_chosen")
load("//bazel:lessons.bzl", "LESSONS")

def lesson_visibility(lesson):
    """Imports only go down: later lessons, final, tests and tools may use a lesson, nobody else."""
    later = LESSONS[LESSONS.index(lesson) + 1:]
    return ["//lessons/%s:__pkg__" % name for name in later] + [
        "//final:__subpackages__",
        "//lessons:__pkg__",
        "//tests:__subpackages__",
        "//tools:__subpackages__",
    ]

def _starter_impl(ctx):
    source = ctx.file.src
    output = ctx.actions.declare_file("_starter/" + source.basename)
    ctx.actions.run(
        executable = ctx.executable._tool,
        arguments = ["--make", source.path, output.path],
        inputs = [source],
        outputs = [output],
        mnemonic = "MakeStarter",
        progress_message = "Emptying the exercise of %s" % source.short_path,
    )
    return [DefaultInfo(files = depset([output]))]

_starter = rule(
    implementation = _starter_impl,
    attrs = {
        "src": attr.label(allow_single_file = True),
        "_tool": attr.label(default = "//tools/exercise:starter", executable = True, cfg = "exec"),
    },
)

# An exercise declares what its solution will need.
_LEARNER_COPTS = [
    "-Wno-unused-const-variable",
    "-Wno-unused-function",
    "-Wno-unused-variable",
]

def _library(name, srcs, check_indices = False, **kwargs):
    if [source for source in srcs if source.endswith(".cu")]:
        cuda_library(name = name, srcs = srcs, check_indices = check_indices, **kwargs)
    else:
        native.cc_library(name = name, srcs = srcs, linkstatic = True, **kwargs)

def lesson(name, library, hdrs, exercise, srcs = [], deps = [], demo_deps = [], data = [], main = "main.cc", counted = False, check_indices = True):
    """See the top of this file.

    Args:
      name: the lesson's folder, as in LESSONS; also the demo.
      library: the library's target.
      hdrs: the library's headers. They are never swapped.
      exercise: the source file that the learner writes; exercise/ holds a file of the same name.
      srcs: the library's other sources. What does not need the exercise is better in a cc_library
        or cuda_library of its own, among deps: it is then compiled once.
      deps: the library's dependencies.
      demo_deps: what main.cc needs besides.
      data: files that the demo reads.
      main: the demo's source.
      counted: the demo shows what the simulator counts.
      check_indices: as for cuda_library, of the learner's file. False where loops over small arrays
        are the kernel's whole work: there it costs more than half of the time.
    """
    counts = {"counted": True} if counted else {}
    visibility = lesson_visibility(name)
    exercise_chosen(name = "exercise_chosen", lesson = name)
    native.config_setting(
        name = "learner",
        flag_values = {":exercise_chosen": "yes"},
    )
    native.config_setting(
        name = "ours",
        flag_values = {":exercise_chosen": "no"},
    )
    native.filegroup(
        name = "exercise_source",
        srcs = [exercise],
        visibility = ["//tests:__pkg__"],
    )
    extension = exercise[exercise.rindex("."):]
    _starter(name = library + ".starter_source" + extension, src = exercise, tags = ["manual"])
    _library(
        name = library + ".solution",
        srcs = [exercise] + srcs,
        hdrs = hdrs,
        deps = deps,
        visibility = visibility,
        **counts
    )
    _library(
        name = library + ".exercise",
        srcs = ["exercise/" + exercise] + srcs,
        hdrs = hdrs,
        deps = deps,
        check_indices = check_indices,
        copts = _LEARNER_COPTS,
        tags = ["manual"],
        visibility = visibility,
        **counts
    )
    _library(
        name = library + ".starter",
        srcs = [":" + library + ".starter_source" + extension] + srcs,
        hdrs = hdrs,
        deps = deps,
        copts = ["-w"],  # an emptied function has unused arguments
        tags = ["manual"],
        visibility = visibility,
    )
    native.alias(
        name = library,
        actual = select({
            ":learner": ":" + library + ".exercise",
            ":ours": ":" + library + ".solution",
        }, no_match_error = UNKNOWN_EXERCISE),
        visibility = visibility,
    )
    if counted:
        native.alias(
            name = library + ".counted",
            actual = select({
                ":learner": ":" + library + ".exercise.counted",
                ":ours": ":" + library + ".solution.counted",
            }, no_match_error = UNKNOWN_EXERCISE),
        )
    native.cc_binary(
        name = name,
        srcs = [main],
        data = data,
        deps = [":" + library + (".counted" if counted else ""), "//common/base"] + demo_deps,
        visibility = ["//visibility:public"],
    )

def lesson_test(name, lesson, library, deps = [], data = [], size = "small", tags = [], guided = False, **kwargs):
    """The checks of a lesson, and the proof that they fail on its starter.

    Args:
      name: "04_rmsnorm_test"; the source is name.cc.
      lesson: "04_rmsnorm".
      library: "rmsnorm".
      deps: what the checks need besides.
      data: files that they read.
      size: as for cc_test.
      tags: as for cc_test; the proof has the tag "starter" as well.
      guided: the proof also wants the first check that fails to be a guided one (common/testing's
        Guide), which says where to start.
      **kwargs: for both cc_tests.
    """
    target = "//lessons/%s:%s" % (lesson, library)
    common = deps + [
        "//common/base",
        "//common/testing",
        "//common/testing:expect_error",
        "//common/testing:guide",
        "@googletest//:gtest_main",
    ]
    native.cc_test(
        name = name,
        srcs = [name + ".cc"],
        data = data,
        deps = [target] + common,
        size = size,
        linkstatic = True,
        tags = tags,
        **kwargs
    )
    native.cc_binary(
        name = name + ".on_starter",
        testonly = True,
        srcs = [name + ".cc"],
        deps = [target + ".starter"] + common,
        linkstatic = True,
        tags = ["manual"],
    )
    native.cc_test(
        name = name + ".starter_fails",
        srcs = ["//common/testing:starter_fails.cc"],
        args = ["$(location :%s.on_starter)" % name] + (["--guided"] if guided else []),
        data = [":%s.on_starter" % name] + data,
        deps = ["//common/base"],
        size = size,
        linkstatic = True,
        tags = tags + ["starter"],
        **kwargs
    )

def challenge(name, hdrs, srcs, deps = [], counted = False):
    """What a lesson leaves for those who want more: a header, and a file that the learner writes.

    Makes name, the learner's library, name.headers and name.files; challenge_test does the rest.

    Args:
      name: "challenge".
      hdrs: its headers, in challenge/.
      srcs: the learner's file, in challenge/; the starter is made from the proof in
        tests/challenges.
      deps: the library's dependencies.
      counted: the check asks the simulator what the kernels did to memory.
    """
    counts = {"counted": True} if counted and srcs[0].endswith(".cu") else {}
    visibility = ["//tests/challenges:__pkg__"]
    native.filegroup(
        name = name + ".files",
        srcs = hdrs + srcs,
        visibility = ["//tests:__pkg__"],
    )
    native.cc_library(
        name = name + ".headers",
        hdrs = hdrs,
        deps = deps,
        tags = ["manual"],
        visibility = visibility,
    )
    _library(
        name = name,
        srcs = srcs,
        deps = [":" + name + ".headers"] + deps,
        check_indices = True,
        copts = _LEARNER_COPTS,
        tags = ["manual"],
        visibility = visibility,
        **counts
    )

def challenge_test(lesson, proof, deps = [], data = [], counted = False):
    """The check of a lesson's challenge, and two proofs: it can be passed, and the starter fails.

    //tests/challenges:04_rmsnorm checks the learner's file (tag manual).

    Args:
      lesson: "04_rmsnorm"; the check is 04_rmsnorm/check.cc.
      proof: one way to do it, with an exercise region: the learner's file is made from it.
      deps: what the check and the proof need besides the header.
      data: files that the check reads.
      counted: as for challenge.
    """
    target = "//lessons/%s:challenge" % lesson
    extension = proof[proof.rindex("."):]
    counts = {"counted": True} if counted and extension == ".cu" else {}
    headers = [target + ".headers"]
    _starter(name = lesson + ".starter_source" + extension, src = proof, tags = ["manual"])
    _library(
        name = lesson + ".proof_library",
        srcs = [proof],
        deps = headers + deps,
        tags = ["manual"],
        testonly = True,
        **counts
    )
    _library(
        name = lesson + ".starter_library",
        srcs = [":" + lesson + ".starter_source" + extension],
        deps = headers + deps,
        copts = ["-w"],
        tags = ["manual"],
        testonly = True,
        **counts
    )
    twin = ".counted" if counts else ""
    common = headers + deps + [
        "//common/base",
        "//common/testing",
        "//common/testing:guide",
        "@googletest//:gtest_main",
    ]
    native.cc_test(
        name = lesson,
        srcs = [lesson + "/check.cc"],
        data = data,
        deps = [target + twin] + common,
        size = "small",
        linkstatic = True,
        tags = ["manual"],
    )
    native.cc_test(
        name = lesson + ".proof",
        srcs = [lesson + "/check.cc"],
        data = data,
        deps = [":" + lesson + ".proof_library" + twin] + common,
        size = "small",
        linkstatic = True,
    )
    native.cc_binary(
        name = lesson + ".on_starter",
        testonly = True,
        srcs = [lesson + "/check.cc"],
        deps = [":" + lesson + ".starter_library" + twin] + common,
        linkstatic = True,
        tags = ["manual"],
    )
    native.cc_test(
        name = lesson + ".starter_fails",
        srcs = ["//common/testing:starter_fails.cc"],
        args = ["$(location :%s.on_starter)" % lesson],
        data = [":%s.on_starter" % lesson] + data,
        deps = ["//common/base"],
        size = "small",
        linkstatic = True,
        tags = ["starter"],
    )
