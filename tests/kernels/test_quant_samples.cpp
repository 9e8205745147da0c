// Weights of every type as the gguf package reads them: quant_samples.txt was made by
// tools/make_quant_samples.py. Values must agree to the bit: each is a product that is exact in
// float and at most one rounded sum, so there is but one right answer.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/backend.h"
#include "kernels/quant_decode.h"
#include "tests/kernels/inputs.h"

namespace troupe::test {

namespace {

struct Sample {
  size_t count = 0;
  std::vector<std::byte> weights;
  std::vector<std::byte> values;  // floats
};

void add_bytes(std::vector<std::byte>& to, const std::string& hexadecimal) {
  for (size_t i = 0; i + 1 < hexadecimal.size(); i += 2)
    to.push_back(static_cast<std::byte>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16)));
}

std::map<std::string, Sample> read_samples() {
  std::map<std::string, Sample> samples;
  std::ifstream file("tests/kernels/quant_samples.txt");
  BOOST_REQUIRE(file.is_open());
  std::string line, name;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, rest;
    words >> kind >> rest;
    if (kind == "type") words >> samples[name = rest].count;
    if (kind == "w") add_bytes(samples[name].weights, rest);
    if (kind == "y") add_bytes(samples[name].values, rest);
  }
  return samples;
}

const std::map<std::string, Sample>& samples() {
  static const std::map<std::string, Sample> all = read_samples();
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(quant_samples)

BOOST_AUTO_TEST_CASE(there_is_a_sample_of_every_type) {
  BOOST_TEST(samples().size() == kDataTypes.size());
  for (const DataType type : kDataTypes) BOOST_TEST(samples().contains(to_string(type)));
}

BOOST_AUTO_TEST_CASE(every_backend_reads_rows_as_the_gguf_package_does) {
  for (const KernelChoice kernels : {KernelChoice::kReference, KernelChoice::kAuto}) {
    const auto operators = make_operators({.kernels = kernels}).value();
    for (const DataType type : kDataTypes) {
      const Sample& sample = samples().at(to_string(type));
      BOOST_REQUIRE(sample.values.size() == sample.count * sizeof(float));
      std::vector<float> expected(sample.count), y(sample.count);
      std::memcpy(expected.data(), sample.values.data(), sample.values.size());
      // Two rows: the second begins within the file's bytes.
      const size_t columns = sample.count / 2;
      auto weights =
          operators->pack({.type = type, .rows = 2, .columns = columns, .bytes = {sample.weights}});
      BOOST_REQUIRE(weights.ok());
      const uint32_t tokens[] = {0, 1};
      operators->embed({y.data(), 2, columns}, tokens, *weights.value());
      const size_t at = first_difference(y, expected);
      BOOST_TEST(at == sample.count, operators->name()
                                         << " " << to_string(type) << " element " << at);
      if (at < sample.count) BOOST_TEST(y[at] == expected[at]);
    }
  }
}

BOOST_AUTO_TEST_CASE(exponents_of_mxfp4_are_powers_of_two) {
  for (int e = 0; e < 256; ++e) {
    const float power = e8m0_to_float(static_cast<uint8_t>(e));
    BOOST_TEST(power == std::ldexp(1.0F, e - 128));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
