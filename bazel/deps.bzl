"""What the project stands on: Debian packages, and CUDA where it is installed."""

load("//bazel:cuda_configure.bzl", "cuda_configure")
load("//bazel:debian.bzl", "debian_library", "debian_rules")

def tiny_vllm_dependencies():
    debian_library(
        name = "googletest",
        apt = "libgtest-dev",
        headers = ["gtest/gtest.h"],
        libraries = ["libgtest.a", "libgtest_main.a"],
        targets = {
            "gtest": "-lgtest -lpthread",
            "gtest_main": "-lgtest_main -lgtest -lpthread",
        },
    )
    debian_library(
        name = "nlohmann_json",
        apt = "nlohmann-json3-dev",
        headers = ["nlohmann/json.hpp"],
        targets = {"json": ""},
    )
    debian_library(
        name = "cli11",
        apt = "libcli11-dev",
        headers = ["CLI/CLI.hpp"],
        targets = {"cli11": ""},
    )
    debian_library(
        name = "pcre2",
        apt = "libpcre2-dev",
        headers = ["pcre2.h"],
        libraries = ["libpcre2-8.so"],
        targets = {"pcre2": "-lpcre2-8"},
    )
    debian_library(
        name = "boost_context",
        apt = "libboost-context-dev",
        headers = ["boost/context/fiber.hpp"],
        libraries = ["libboost_context.so"],
        targets = {"context": "-lboost_context"},
    )
    cuda_configure(name = "local_cuda")

def bazel_own_dependencies(is_debian_bazel):
    """Repositories that Bazel's built-in rules name; elsewhere Bazel fetches them itself."""
    if not is_debian_bazel:
        return
    for name, folder in {
        "bazel_features": "tools/features",
        "bazel_skylib": "tools/skylib",
        "platforms": "tools/platforms",
        "remote_coverage_tools": "none",
        "rules_cc": "rules/cc",
        "rules_java": "rules/java",
        "rules_license": "rules/license",
        "rules_proto": "rules/proto",
        "rules_python": "rules/python",
    }.items():
        debian_rules(name = name, folder = folder)
