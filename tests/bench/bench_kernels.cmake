troupe_program(bench_kernels SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_kernels.cpp
  PRIVATE troupe_kernels)
