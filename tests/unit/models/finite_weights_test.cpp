// A weight or a scale that is NaN or infinite is found wherever it lies, and no model is loaded
// with one.
#include "models/finite_weights.h"

#include <boost/test/unit_test.hpp>

#include "kernels/backend.h"
#include "models/architecture.h"
#include "models/weights.h"
#include "tests/kernels/inputs.h"
#include "tests/unit/models/bytes_of_files.h"

namespace troupe::test {
namespace {

// Places of 16 bits within a block whose exponent says whether a number is finite, and what makes
// them NaN or infinite.
std::vector<size_t> places_of(DataType type) {
  if (type == DataType::kF32) return {2};
  if (type == DataType::kBf16) return {0};
  return half_places(type);
}
std::vector<uint16_t> wrong_numbers(DataType type) {
  if (type == DataType::kF32 || type == DataType::kBf16) return {0x7F80, 0xFF80, 0x7FC1};
  return {0x7C00, 0xFC00, 0x7E01, 0xFD00};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(finite_weights)

BOOST_AUTO_TEST_CASE(every_number_that_is_none_is_found_by_row_and_block) {
  constexpr size_t kRows = 3, kColumns = 768;
  for (const DataType type : kDataTypes) {
    const Bytes good = Inputs(3).weight(type, kRows, kColumns, Kind::kTame);
    const auto check = [&](const Bytes& bytes) {
      return check_finite_weights({type, kRows, kColumns, {bytes}});
    };
    require_ok(check(good));
    const size_t size = block_bytes(type), blocks = kColumns / block_elements(type);
    const auto refused = [&](size_t row, size_t block, size_t place, auto number) {
      Bytes bytes = good;
      overwrite(bytes, (row * blocks + block) * size + place, number);
      const Result<void> result = check(bytes);
      BOOST_TEST(!result.ok(), to_string(type) << " place " << place);
      if (result.ok()) return;
      const char* unit = is_quantised(type) ? "block " : "element ";
      check_refused(result.error(),
                    unit + std::to_string(block) + " of row " + std::to_string(row) +
                        (is_quantised(type) ? " has a scale that is NaN" : " is NaN"));
    };
    for (const size_t row : {size_t{0}, kRows - 1})
      for (const size_t block : {size_t{0}, blocks / 2, blocks - 1}) {
        if (type == DataType::kMxfp4) refused(row, block, 0, uint8_t{255});
        for (const size_t place : places_of(type))
          for (const uint16_t number : wrong_numbers(type)) refused(row, block, place, number);
      }
  }
}

// The largest finite numbers are none of its business.
BOOST_AUTO_TEST_CASE(the_largest_numbers_are_finite) {
  for (const DataType type : kDataTypes) {
    Bytes bytes = Inputs(4).weight(type, 1, 512, Kind::kTame);
    for (size_t at = 0; at < bytes.size(); at += block_bytes(type)) {
      const bool wide = type == DataType::kF32 || type == DataType::kBf16;
      for (const size_t place : places_of(type))
        overwrite(bytes, at + place, static_cast<uint16_t>(wide ? 0x7F7F : 0x7BFF));
      if (type == DataType::kMxfp4) overwrite(bytes, at, uint8_t{254});
    }
    require_ok(check_finite_weights({type, 1, 512, {bytes}}));
  }
}

BOOST_AUTO_TEST_CASE(a_model_with_one_is_refused_by_tensor) {
  const auto load = [](const Bytes& bytes) {
    const GgufFile file = GgufFile::parse(bytes).value();
    const ModelConfig config = read_model_config(file).value();
    const auto operators = make_operators({.kernels = KernelChoice::kReference}).value();
    return load_stage_weights(file, config, {{0, config.layers}, true, true}, *operators);
  };
  const Bytes good = small_model();
  require_ok(load(good));
  const GgufFile file = GgufFile::parse(good).value();
  for (const GgufTensor& tensor : file.tensors()) {
    BOOST_TEST_CONTEXT(tensor.name) {
      Bytes bytes = good;
      const auto start = static_cast<size_t>(tensor.bytes.data() - file.bytes().data());
      // Norms are F32, matrices Q4_1: the second half of its first block is the minimum.
      overwrite(bytes, start + 2, static_cast<uint16_t>(tensor.rank == 1 ? 0x7FC0 : 0x7E00));
      const auto loaded = load(bytes);
      BOOST_REQUIRE(!loaded.ok());
      check_refused(loaded.error(), "tensor '" + std::string(tensor.name) + "'");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
