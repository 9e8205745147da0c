troupe_program(bench_transport SOURCES "${CMAKE_CURRENT_LIST_DIR}/bench_transport.cpp"
  PRIVATE troupe_transport troupe_ucx)
