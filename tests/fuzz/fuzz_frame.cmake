troupe_program(fuzz_frame SOURCES "${CMAKE_CURRENT_LIST_DIR}/fuzz_frame.cpp"
  PRIVATE troupe_transport)
set_target_properties(fuzz_frame PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
add_test(NAME fuzz_frame COMMAND fuzz_frame 3 1)
set_tests_properties(fuzz_frame PROPERTIES LABELS fuzz TIMEOUT 60)
