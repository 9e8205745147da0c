# troupe_library(NAME SOURCES … [PUBLIC …] [PRIVATE …])   one static library, with the project's warnings
# troupe_program(NAME SOURCES … [PRIVATE …])              one executable in bin/
# troupe_test(NAME SOURCES … [PRIVATE …] [LABELS …] [ARGS …] [TIMEOUT …])
#     one Boost.Test executable, run by CTest in the source root

add_library(troupe_options INTERFACE)
# No contraction and no fast-math anywhere: numerics rule N1 (docs/ARCHITECTURE.md, "One arithmetic").
target_compile_options(troupe_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow;-Werror;-ffp-contract=off;-fno-fast-math>)
# g++ 12 warns falsely of std::optional and kj::Maybe inside each other, and of strings added to strings (GCC bug
# 105651); the sanitizers look for the real thing.
target_compile_options(troupe_options INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized;-Wno-restrict>)
if(TROUPE_SANITIZE)
  target_compile_options(troupe_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TROUPE_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>)
  target_link_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE})
endif()

function(troupe_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE troupe_options ${arg_PRIVATE})
endfunction()

function(troupe_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE troupe_options ${arg_PRIVATE})
endfunction()

function(troupe_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;PRIVATE;LABELS;ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  # Tests are compiled for the time it takes to compile them; what they test is optimised as it ships.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(${name} PRIVATE troupe_options troupe_test_support ${arg_PRIVATE})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  # A test that cannot run here exits with 77 and is reported as skipped, never as passed.
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "TROUPE_BIN=${CMAKE_BINARY_DIR}/bin;TROUPE_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
