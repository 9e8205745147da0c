# Tests of what runs the layers of a model, and the drivers they share.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(troupe_test_pipeline STATIC
  "${PROJECT_SOURCE_DIR}/tests/support/exactness_cells.cpp"
  "${PROJECT_SOURCE_DIR}/tests/support/pipeline.cpp"
  "${PROJECT_SOURCE_DIR}/tests/support/real_model.cpp")
target_link_libraries(troupe_test_pipeline PUBLIC troupe_models troupe_kernels PRIVATE troupe_options)

troupe_test(models_sampler_test SOURCES sampler_test.cpp PRIVATE troupe_models LABELS unit)
troupe_test(models_kv_cache_test SOURCES kv_cache_test.cpp PRIVATE troupe_models LABELS unit)
troupe_test(models_kv_kept_test SOURCES kv_kept_test.cpp PRIVATE troupe_models LABELS unit)
troupe_test(models_finite_weights_test SOURCES finite_weights_test.cpp PRIVATE troupe_tiny_model LABELS unit)
troupe_test(models_forward_test SOURCES forward_test.cpp PRIVATE troupe_test_pipeline troupe_tiny_model LABELS unit)
troupe_test(models_gguf_split_test SOURCES gguf_split_test.cpp
  PRIVATE troupe_test_pipeline troupe_tiny_model LABELS unit)
troupe_test(models_stage_test SOURCES stage_test.cpp PRIVATE troupe_test_pipeline troupe_tiny_model LABELS unit)
troupe_test(models_exactness_test SOURCES exactness_test.cpp PRIVATE troupe_test_pipeline troupe_tiny_model LABELS unit)
troupe_test(models_smollm2_test SOURCES smollm2_test.cpp PRIVATE troupe_test_pipeline LABELS model TIMEOUT 300)

# By hand: the whole matrix on a real model.
troupe_program(exactness_matrix SOURCES exactness_matrix.cpp
  PRIVATE troupe_test_pipeline CLI11::CLI11 nlohmann_json::nlohmann_json)
