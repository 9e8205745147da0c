// The backends that are compared with the reference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/inputs.h"

namespace troupe::test {

struct Backend {
  std::string name;
  std::unique_ptr<Operators> operators;
};

// Every vector backend of this CPU, with 1, 2 and 3 threads. The whole executable is skipped if
// there is none.
std::vector<Backend>& backends();
std::unique_ptr<Operators> reference();

template <class T>
TensorView<T> view(std::vector<T>& values, size_t rows) {
  return {values.data(), rows, rows == 0 ? 0 : values.size() / rows};
}
inline TensorView<const float> view(const std::vector<float>& values, size_t rows) {
  return {values.data(), rows, rows == 0 ? 0 : values.size() / rows};
}

std::unique_ptr<Weights> pack(Operators& operators, DataType type, size_t rows, size_t columns,
                              const std::vector<std::byte>& bytes);

// A layer's keys and values, random halves, and rows that stand in them: each sequence has blocks
// of its own, in no particular order.
struct KvFixture {
  std::vector<uint16_t> keys, values;
  KvLayer layer;
  std::vector<std::vector<uint32_t>> blocks;  // by sequence
  std::vector<RowPlace> places;

  KvFixture(Inputs& inputs, size_t kv_heads, size_t head_dim, size_t sequences, size_t tokens_max,
            Kind kind);
  void add_row(size_t sequence, uint32_t position) {
    places.push_back({position, blocks[sequence]});
  }
};

}  // namespace troupe::test
