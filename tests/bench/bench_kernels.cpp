// How fast the operators are at the shapes of SmolLM2-135M: prints one JSON object. A matmul's
// figure is 10^9 products (one weight times one value of one row) a second; each shape is measured
// on as many matrices as the model has layers' worth of memory for, so that weights come from where
// they would in the model.
// A matrix of a type with super-blocks has its k rounded up to whole ones.
//   bench_kernels [--threads 1,2] [--kernels auto] [--seconds 0.2] [--types Q4_1,Q5_0 | all]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/inputs.h"

namespace troupe::bench {

namespace {

using Clock = std::chrono::steady_clock;
using test::Inputs;
using test::Kind;

struct Settings {
  std::vector<size_t> threads{1, 2};
  KernelChoice kernels = KernelChoice::kAuto;
  double seconds = 0.2;
  std::vector<DataType> types{DataType::kQ4_1, DataType::kQ4_0, DataType::kQ8_0, DataType::kF16,
                              DataType::kQ4K,  DataType::kQ5K,  DataType::kQ6K};
};

struct Shape {
  size_t outputs;
  size_t k;
};

// Calls act() again and again for at least `seconds` in each of three rounds; the best round's
// seconds a call.
template <class Act>
double seconds_a_call(double seconds, const Act& act) {
  act();
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    size_t calls = 0;
    const auto start = Clock::now();
    double elapsed = 0;
    do {
      act();
      ++calls;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < seconds / 3);
    best = std::min(best, elapsed / static_cast<double>(calls));
  }
  return best;
}

// Copies of a matrix, so that they exceed the caches together, as a model's layers do.
std::vector<std::unique_ptr<Weights>> weights_of(Operators& operators, DataType type,
                                                 const Shape& shape) {
  constexpr size_t kBytes = size_t{64} << 20;
  Inputs inputs(1);
  const auto bytes = inputs.weight(type, shape.outputs, shape.k, Kind::kTame);
  std::vector<std::unique_ptr<Weights>> all;
  for (size_t i = 0; i == 0 || i * bytes.size() < kBytes; ++i)
    all.push_back(std::move(operators.pack({type, shape.outputs, shape.k, {bytes}})).value());
  return all;
}

void bench_matmul(Operators& operators, const Settings& settings, bool& first) {
  constexpr Shape kShapes[] = {{576, 576}, {1536, 576}, {576, 1536}, {49152, 576}};
  for (const DataType type : settings.types)
    for (Shape shape : kShapes) {
      shape.k = test::whole_blocks(type, shape.k);
      const auto weights = weights_of(operators, type, shape);
      for (const size_t rows : {1U, 4U, 8U, 64U}) {
        Inputs inputs(2);
        const auto x = inputs.values(rows * shape.k, Kind::kTame);
        std::vector<float> y(rows * shape.outputs);
        size_t next = 0;
        const double seconds = seconds_a_call(settings.seconds, [&] {
          const MatmulOutput output{{y.data(), rows, shape.outputs}, weights[next].get()};
          operators.matmul({&output, 1}, {x.data(), rows, shape.k});
          next = (next + 1) % weights.size();
        });
        const auto products = static_cast<double>(rows * shape.outputs * shape.k);
        const auto bytes = static_cast<double>(weights[0]->memory_bytes());
        fmt::print(
            "{}\n    {{\"threads\": {}, \"type\": \"{}\", \"outputs\": {}, \"k\": {}, \"rows\": "
            "{}, "
            "\"gmac_per_s\": {:.1f}, \"weight_gb_per_s\": {:.1f}}}",
            first ? "" : ",", operators.threads(), to_string(type), shape.outputs, shape.k, rows,
            products / seconds * 1e-9, bytes / seconds * 1e-9);
        first = false;
      }
    }
}

// One layer of 9 query and 3 kv heads of 64 dimensions.
void bench_attention(Operators& operators, const Settings& settings, bool& first) {
  constexpr size_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  for (const size_t rows : {1U, 64U})
    for (const size_t tokens : {128U, 512U, 2048U}) {
      Inputs inputs(3);
      const size_t pages = tokens / kKvBlockTokens;
      std::vector<uint16_t> keys(pages * kKvHeads * kHeadDim * kKvBlockTokens);
      for (uint16_t& key : keys) key = float_to_half(inputs.uniform());
      std::vector<uint16_t> values = keys;
      std::vector<uint32_t> blocks(pages);
      for (size_t i = 0; i < pages; ++i) blocks[i] = static_cast<uint32_t>(i);
      std::vector<RowPlace> places;
      for (size_t r = 0; r < rows; ++r)
        places.push_back({static_cast<uint32_t>(tokens - rows + r), blocks});
      const auto q = inputs.values(rows * kHeads * kHeadDim, Kind::kTame);
      std::vector<float> y(q.size());
      const double seconds = seconds_a_call(settings.seconds, [&] {
        operators.attention(
            {y.data(), rows, kHeads * kHeadDim}, {q.data(), rows, kHeads * kHeadDim},
            {keys.data(), values.data(), pages, kKvHeads, kHeadDim}, places, 0.125F);
      });
      const auto products = static_cast<double>(2 * rows * tokens * kHeads * kHeadDim);
      fmt::print(
          "{}\n    {{\"threads\": {}, \"rows\": {}, \"tokens\": {}, \"microseconds\": {:.1f}, "
          "\"gmac_per_s\": {:.1f}}}",
          first ? "" : ",", operators.threads(), rows, tokens, seconds * 1e6,
          products / seconds * 1e-9);
      first = false;
    }
}

struct LayerWeights {
  std::unique_ptr<Weights> q, k, v, o, gate, up, down;
};

// What one token, or one chunk of prefill, costs in operators alone: a model without the model.
void bench_layers(Operators& operators, const Settings& settings, bool& first) {
  constexpr size_t kLayers = 30, kHidden = 576, kKv = 192, kFfn = 1536, kVocabulary = 49152;
  constexpr size_t kPast = 128, kPages = 10, kHeadDim = 64;
  Inputs inputs(4);
  const auto weight = [&](DataType type, size_t outputs, size_t k) {
    const auto bytes = inputs.weight(type, outputs, k, Kind::kTame);
    return std::move(operators.pack({type, outputs, k, {bytes}})).value();
  };
  std::vector<LayerWeights> layers;
  for (size_t i = 0; i < kLayers; ++i)
    layers.push_back(
        {weight(DataType::kQ4_1, kHidden, kHidden), weight(DataType::kQ4_1, kKv, kHidden),
         weight(DataType::kQ4_1, kKv, kHidden), weight(DataType::kQ4_1, kHidden, kHidden),
         weight(DataType::kQ4_1, kFfn, kHidden), weight(DataType::kQ4_1, kFfn, kHidden),
         weight(DataType::kQ4_1, kHidden, kFfn)});
  const auto head = weight(DataType::kQ8_0, kVocabulary, kHidden);
  const size_t kv_size = kLayers * kPages * kKv * kKvBlockTokens;
  std::vector<uint16_t> keys(kv_size), values(kv_size);
  std::vector<uint32_t> blocks(kPages);
  for (size_t i = 0; i < kPages; ++i) blocks[i] = static_cast<uint32_t>(i);
  const std::vector<float> norm(kHidden, 1.0F);
  const RopeParameters rope{.head_dim = kHeadDim, .rotary_dims = kHeadDim, .frequency_base = 1e5F};
  for (const size_t rows : {1U, 8U, 64U, 512U}) {
    std::vector<RowPlace> places;
    for (size_t r = 0; r < rows; ++r)
      places.push_back({static_cast<uint32_t>((rows == 512 ? 0 : kPast) + r), blocks});
    const auto room = [&](size_t columns) { return std::vector<float>(rows * columns, 0.5F); };
    auto x = room(kHidden), h = room(kHidden), q = room(kHidden), k = room(kKv), v = room(kKv);
    auto a = room(kHidden), gate = room(kFfn), up = room(kFfn);
    std::vector<float> logits(kVocabulary);
    const auto of = [&](std::vector<float>& data) {
      return TensorView<float>{data.data(), rows, data.size() / rows};
    };
    const double seconds = seconds_a_call(settings.seconds * (rows > 8 ? 5 : 2), [&] {
      for (size_t i = 0; i < kLayers; ++i) {
        const LayerWeights& layer = layers[i];
        const size_t at = i * kPages * kKv * kKvBlockTokens;
        const KvLayer kv{keys.data() + at, values.data() + at, kPages, 3, kHeadDim};
        operators.rms_norm(of(h), of(x), norm, 1e-5F);
        const MatmulOutput qkv[] = {
            {of(q), layer.q.get()}, {of(k), layer.k.get()}, {of(v), layer.v.get()}};
        operators.matmul(qkv, of(h));
        operators.rope(of(q), places, rope);
        operators.rope(of(k), places, rope);
        operators.store_kv(kv, of(k), of(v), places);
        operators.attention(of(a), of(q), kv, places, 0.125F);
        const MatmulOutput out{of(h), layer.o.get()};
        operators.matmul({&out, 1}, of(a));
        operators.add(of(x), of(h));
        operators.rms_norm(of(h), of(x), norm, 1e-5F);
        const MatmulOutput ffn[] = {{of(gate), layer.gate.get()}, {of(up), layer.up.get()}};
        operators.matmul(ffn, of(h));
        operators.swiglu(of(gate), of(gate), of(up));
        const MatmulOutput down{of(h), layer.down.get()};
        operators.matmul({&down, 1}, of(gate));
        operators.add(of(x), of(h));
      }
      const MatmulOutput last{{logits.data(), 1, kVocabulary}, head.get()};
      operators.matmul({&last, 1}, {x.data(), 1, kHidden});
      std::fill(x.begin(), x.end(), 0.5F);
    });
    fmt::print(
        "{}\n    {{\"threads\": {}, \"rows\": {}, \"milliseconds\": {:.3f}, "
        "\"tokens_per_s\": {:.1f}}}",
        first ? "" : ",", operators.threads(), rows, seconds * 1e3,
        static_cast<double>(rows) / seconds);
    first = false;
  }
}

template <class Bench>
void section(const char* name, const char* end, const Settings& settings, const Bench& bench) {
  fmt::print("  \"{}\": [", name);
  bool first = true;
  for (const size_t threads : settings.threads) {
    auto operators = make_operators({.kernels = settings.kernels, .threads = threads});
    if (!operators.ok()) {
      fmt::print(stderr, "{}\n", to_string(operators.error()));
      std::exit(1);
    }
    bench(*operators.value(), settings, first);
  }
  fmt::print("\n  ]{}\n", end);
}

Settings parse(int count, char** arguments) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i], value = arguments[i + 1];
    if (name == "--seconds") {
      settings.seconds = std::max(0.001, std::strtod(arguments[i + 1], nullptr));
    } else if (name == "--kernels" && parse_kernel_choice(value).ok()) {
      settings.kernels = parse_kernel_choice(value).value();
    } else if (name == "--types") {
      const std::string list = "," + std::string(value) + ",";
      settings.types.clear();
      for (const DataType type : kDataTypes)
        if (value == "all" || list.find("," + std::string(to_string(type)) + ",") != list.npos)
          settings.types.push_back(type);
    } else if (name == "--threads") {
      settings.threads.clear();
      for (const char* at = arguments[i + 1]; *at != '\0';) {
        char* end = nullptr;
        settings.threads.push_back(std::strtoul(at, &end, 10));
        at = *end == ',' ? end + 1 : "";
      }
    } else {
      fmt::print(stderr,
                 "unknown: {} {}; allowed are --threads, --kernels, --types and --seconds\n", name,
                 value);
      std::exit(2);
    }
  }
  return settings;
}

}  // namespace

}  // namespace troupe::bench

int main(int count, char** arguments) {
  using namespace troupe::bench;
  const Settings settings = parse(count, arguments);
  fmt::print("{{\n  \"kernels\": \"{}\",\n", troupe::to_string(settings.kernels));
  section("layers", ",", settings, [](auto&... a) { bench_layers(a...); });
  section("attention", ",", settings, [](auto&... a) { bench_attention(a...); });
  section("matmul", "", settings, [](auto&... a) { bench_matmul(a...); });
  fmt::print("}}\n");
  return 0;
}
