"""Repository rules that use what Debian has installed. Nothing is downloaded."""

def _multiarch(ctx):
    gcc = ctx.which("gcc") or ctx.which("cc")
    return ctx.execute([gcc, "-print-multiarch"]).stdout.strip() if gcc else ""

def _exists_in_one_of(folders, name):
    return " -o ".join(["-e %s/%s" % (folder, name) for folder in folders])

def _debian_library_impl(ctx):
    multiarch = _multiarch(ctx)
    include = ["/usr/include", "/usr/local/include", "/usr/include/" + multiarch]
    lib = ["/usr/lib/" + multiarch, "/usr/lib64", "/usr/local/lib"]
    tests = ["test " + _exists_in_one_of(include, header) for header in ctx.attr.headers]
    tests += ["test " + _exists_in_one_of(lib, library) for library in ctx.attr.libraries]

    # An action and not a check at fetch time: a fetch that failed would stay failed after apt-get.
    missing = "ERROR: Debian package %s is missing; run: apt-get install %s" % (ctx.attr.apt, ctx.attr.apt)
    lines = [
        "package(default_visibility = ['//visibility:public'])",
        "genrule(name = 'installed', outs = ['installed.h'], message = 'Looking for %s', cmd = %r)" % (
            ctx.attr.apt,
            " && ".join(tests) + " && touch $@ || { echo '%s' >&2; exit 1; }" % missing,
        ),
    ]
    for name, linkopts in ctx.attr.targets.items():
        lines.append("cc_library(name = %r, hdrs = ['installed.h'], linkopts = %r)" % (name, linkopts.split(" ") if linkopts else []))
    ctx.file("BUILD", "\n".join(lines) + "\n")

debian_library = repository_rule(
    implementation = _debian_library_impl,
    local = True,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "the package, for the message when it is missing"),
        "headers": attr.string_list(doc = "files below /usr/include that must exist"),
        "libraries": attr.string_list(doc = "files below /usr/lib that must exist"),
        "targets": attr.string_dict(doc = "target name -> its link options"),
    },
)

# Debian 12's rules_cc 0.0.4 is too new for Debian 12's own Bazel 4.2.3, so that one gets this.
_RULES_CC_SHIM = """
cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_proto_library = native.cc_proto_library
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
"""

_NO_COVERAGE = """
sh_binary(
    name = "coverage_report_generator",
    srcs = ["none.sh"],
    visibility = ["//visibility:public"],
)
"""

def _debian_rules_impl(ctx):
    source = ctx.path("/usr/share/bazel/" + ctx.attr.folder)
    if ctx.attr.folder == "rules/cc" and not source.get_child("cc").get_child("cc_library.bzl").exists:
        ctx.file("BUILD")
        ctx.file("cc/BUILD")
        ctx.file("cc/defs.bzl", _RULES_CC_SHIM)
    elif source.exists:
        for child in source.readdir():
            ctx.symlink(child, child.basename)
    else:
        ctx.file("none.sh", "exit 0\n", executable = True)
        ctx.file("BUILD", _NO_COVERAGE)

debian_rules = repository_rule(
    implementation = _debian_rules_impl,
    local = True,
    attrs = {"folder": attr.string(doc = "below /usr/share/bazel; where it is absent, a stub")},
    doc = "A repository that Bazel itself would download, from Debian's bazel-* packages.",
)

def _debian_bazel_impl(ctx):
    ctx.file("BUILD")
    found = ctx.path("/usr/share/bazel").exists
    ctx.file("defs.bzl", "IS_DEBIAN_BAZEL = %s\n" % found)

debian_bazel = repository_rule(
    implementation = _debian_bazel_impl,
    local = True,
    doc = "Tells whether this Bazel is Debian's, which has its own rules in /usr/share/bazel.",
)
