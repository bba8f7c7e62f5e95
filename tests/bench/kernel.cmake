# SPDX-License-Identifier: Apache-2.0
# bench_kernel: kernels against the memory they run on.  The baselines choose their own instruction set, function by function.
add_executable(bench_kernel ${PROJECT_SOURCE_DIR}/tests/bench/kernel_bench.c)
target_compile_options(bench_kernel PRIVATE -O2)
target_link_libraries(bench_kernel PRIVATE zd_flags zd_kernel Threads::Threads)
