// CUDA on a CPU: the simulator's drop-in for CUDA's header of this name.
//
// A .cu file that has been through cu2cpp (which rewrites launches and `__shared__` declarations,
// see cu2cpp.cc) compiles with g++ against this header and runs without a GPU. docs/simulator.md
// says what is supported and how it works.
#pragma once

// CUDA's header brings these along, and kernels rely on it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_runtime_api.h"
#include "cuda_simulator/atomic.h"
#include "cuda_simulator/checks.h"
#include "cuda_simulator/launch.h"
#include "cuda_simulator/math.h"
#include "cuda_simulator/memory.h"
#include "cuda_simulator/sync.h"
#include "device_launch_parameters.h"
#include "driver_types.h"
#include "host_defines.h"
#include "library_types.h"
#include "vector_functions.h"
#include "vector_types.h"
