find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
troupe_program(bench_model SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_model.cpp
  PRIVATE troupe_test_pipeline CLI11::CLI11 nlohmann_json::nlohmann_json)
