find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
troupe_program(bench_model SOURCES "${PROJECT_SOURCE_DIR}/tests/bench/bench_model.cpp"
  PRIVATE troupe_test_pipeline CLI11::CLI11 nlohmann_json::nlohmann_json)
