"""Build settings: --//:backend, --//:cuda_arch, --//:exercise, and the rules that read them."""

load("@local_cuda//:defs.bzl", "AUTO_BACKEND", "CUDA")
load("//bazel:lessons.bzl", "LESSONS")

StringFlagInfo = provider(fields = ["value"])

def _string_flag_impl(ctx):
    value = ctx.build_setting_value
    if ctx.attr.values and value not in ctx.attr.values:
        fail("--%s=%s: expected one of %s" % (ctx.label, value, ", ".join(ctx.attr.values)))
    return [StringFlagInfo(value = value)]

string_flag = rule(
    implementation = _string_flag_impl,
    build_setting = config.string(flag = True),
    attrs = {"values": attr.string_list(doc = "what is accepted; empty: anything")},
)

def _backend_impl(ctx):
    value = ctx.attr.flag[StringFlagInfo].value
    if value == "auto":
        value = AUTO_BACKEND
    if value == "cuda" and not CUDA.found:
        fail("backend cuda: no CUDA toolkit found at $CUDA_PATH, $CUDA_HOME, nvcc on PATH or " +
             "/usr/local/cuda; install one, or use --config=cpu for the simulator")
    return [config_common.FeatureFlagInfo(value = value)]

backend = rule(
    implementation = _backend_impl,
    attrs = {"flag": attr.label(providers = [StringFlagInfo])},
    doc = "Resolves auto. For config_setting's flag_values.",
)

def _flags_as_written_impl(ctx):
    output = ctx.actions.declare_file(ctx.label.name + ".inc")
    ctx.actions.write(output, "".join([
        '"--//:%s=%s",\n' % (flag.label.name, flag[StringFlagInfo].value)
        for flag in ctx.attr.flags
    ]))
    return [DefaultInfo(files = depset([output]))]

flags_as_written = rule(
    implementation = _flags_as_written_impl,
    attrs = {"flags": attr.label_list(providers = [StringFlagInfo])},
    doc = "NAME.inc: the flags as they were given, for a C++ program that calls bazel with them.",
)

# "04_rmsnorm" from 04_rmsnorm, 04, 4 or rmsnorm; None from what names no lesson.
def _lesson_of(name):
    for lesson in LESSONS:
        if name in [lesson, lesson[:2], lesson[:2].lstrip("0") or "0", lesson[3:]]:
            return lesson
    return None

# The lessons that the flag names. What names none is ignored here and refused by UNKNOWN_EXERCISE:
# a rule that fails shows a traceback, a select that finds nothing one line.
def _chosen_lessons(flag):
    chosen = [part for part in flag[StringFlagInfo].value.split(",") if part]
    if "all" in chosen:
        return LESSONS
    lessons = [_lesson_of(part) for part in chosen]
    return [lesson for lesson in LESSONS if lesson in lessons]

# For select's no_match_error, where exercise_chosen is neither yes nor no.
UNKNOWN_EXERCISE = ("--//:exercise names what is no lesson; expected all, or folders of lessons/, " +
                    "such as 04_rmsnorm,06_matmul (04,06 and rmsnorm,matmul will do as well)")

def _exercise_chosen_impl(ctx):
    flag = ctx.attr._flag
    value = "yes" if ctx.attr.lesson in _chosen_lessons(flag) else "no"
    for part in flag[StringFlagInfo].value.split(","):
        if part not in ["", "all"] and not _lesson_of(part):
            value = "unknown"
    return [config_common.FeatureFlagInfo(value = value)]

exercise_chosen = rule(
    implementation = _exercise_chosen_impl,
    attrs = {
        "lesson": attr.string(mandatory = True),
        "_flag": attr.label(default = "//:exercise"),
    },
    doc = "yes when --//:exercise names the lesson, else no; unknown when it names what is none. For config_setting's flag_values.",
)

def _exercise_names_impl(ctx):
    output = ctx.actions.declare_file(ctx.label.name + ".inc")
    names = _chosen_lessons(ctx.attr._flag)
    ctx.actions.write(output, "".join(['"%s",\n' % name for name in names]))
    return [DefaultInfo(files = depset([output]))]

exercise_names = rule(
    implementation = _exercise_names_impl,
    attrs = {"_flag": attr.label(default = "//:exercise")},
    doc = "NAME.inc: the lessons that --//:exercise names, as C++ string literals.",
)
