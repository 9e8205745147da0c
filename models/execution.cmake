# What runs the layers of a model.
list(APPEND MODEL_SOURCES
  evaluate.cpp
  finite_weights.cpp
  forward.cpp
  kv_cache.cpp
  kv_proofs.cpp
  kv_segments.cpp
  sampler.cpp
  transformer_stage.cpp
  weights.cpp)
