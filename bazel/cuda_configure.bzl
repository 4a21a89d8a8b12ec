"""@local_cuda: the CUDA toolkit and the GPU of this machine, if there are any. Never fails."""

def _toolkit(ctx):
    for variable in ["CUDA_PATH", "CUDA_HOME"]:
        folder = ctx.os.environ.get(variable)
        if folder and ctx.path(folder).get_child("bin").get_child("nvcc").exists:
            return ctx.path(folder)
    nvcc = ctx.which("nvcc")
    if nvcc:
        return nvcc.realpath.dirname.dirname
    folder = ctx.path("/usr/local/cuda")
    return folder if folder.get_child("bin").get_child("nvcc").exists else None

def _version(ctx, root):
    for line in ctx.execute([root.get_child("bin").get_child("nvcc"), "--version"]).stdout.split("\n"):
        if "release" in line:
            return line.split("release ")[1].split(",")[0]
    return "unknown"

def _gpu_arch(ctx):
    """The compute capability of GPU 0 as sm_NN, "unknown" when it does not tell, "" without a GPU."""
    nvidia_smi = ctx.which("nvidia-smi")
    if nvidia_smi:
        query = ctx.execute([nvidia_smi, "--query-gpu=compute_cap", "--format=csv,noheader"], timeout = 20)
        if query.return_code == 0 and query.stdout.strip():
            return "sm_" + query.stdout.split("\n")[0].strip().replace(".", "")
    return "unknown" if ctx.path("/dev/nvidia0").exists else ""

def _host_compiler(ctx, root):
    """$CUDAHOSTCXX, else g++ if this toolkit accepts it, else the newest g++-N that it accepts."""
    if ctx.os.environ.get("CUDAHOSTCXX"):
        return ctx.os.environ["CUDAHOSTCXX"]
    newest = 99
    for line in ctx.read(root.get_child("include").get_child("crt").get_child("host_config.h")).split("\n"):
        if "__GNUC__ > " in line:
            newest = int(line.split("__GNUC__ > ")[1].split(" ")[0].strip(")"))
    gxx = ctx.which("g++")
    if gxx and int(ctx.execute([gxx, "-dumpversion"]).stdout.strip().split(".")[0]) <= newest:
        return str(gxx)
    for version in range(newest, 8, -1):
        versioned = ctx.which("g++-%d" % version)
        if versioned:
            return str(versioned)
    return "g++"

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(name = "cudart", hdrs = {headers}, includes = ["include"], linkopts = {cudart})

cc_library(name = "cublas", deps = [":cudart"], linkopts = {cublas})
"""

def _cuda_configure_impl(ctx):
    root = _toolkit(ctx)
    gpu = _gpu_arch(ctx)
    cudart = []
    cublas = []
    if root:
        ctx.symlink(root.get_child("include"), "include")
        cudart = ["-L%s/lib64" % root, "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
        cublas = ["-L%s/lib64" % root, "-lcublas", "-Wl,-rpath,%s/lib64" % root]
    ctx.file("defs.bzl", "CUDA = struct(found = %s, root = %r, version = %r, gpu = %r, host_compiler = %r)\n\nAUTO_BACKEND = %r\n" % (
        bool(root),
        str(root) if root else "",
        _version(ctx, root) if root else "",
        gpu,
        _host_compiler(ctx, root) if root else "",
        "cuda" if root and gpu else "cpu",
    ))
    ctx.file("BUILD", _BUILD.format(
        headers = "glob([\"include/**\"], exclude = [\"include/cccl/**\"])" if root else "[]",
        cudart = repr(cudart),
        cublas = repr(cublas),
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    local = True,
    configure = True,
    environ = ["CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "PATH"],
)
