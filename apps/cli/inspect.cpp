// troupe inspect: what a model file holds, whether it runs here, and what its stages would take.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "actors/logic/placement.h"
#include "actors/model_registry.h"
#include "actors/replica_spec.h"
#include "apps/cli/command.h"
#include "apps/cli/gguf_text.h"
#include "apps/cli/pull_model.h"
#include "apps/cli/terminal.h"
#include "apps/node/config.h"
#include "kernels/ops.h"
#include "models/architecture.h"

namespace troupe::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectCommand {
  std::string model;
  uint32_t stages = 3, context = DeploymentConfig{}.context, streams = DeploymentConfig{}.streams;
  bool metadata = false, tensors = false, json = false;
};

struct StageNeed {
  LayerRange layers;
  uint64_t weights = 0, kv = 0, journal = 0;  // bytes
  uint64_t all() const { return weights + kv + journal; }
};

struct TypeShare {
  uint64_t tensors = 0, bytes = 0;
};

std::map<std::string, TypeShare> types_of(const GgufFile& file) {
  std::map<std::string, TypeShare> types;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeShare& share = types[ggml_type_name(tensor.type)];
    ++share.tensors;
    share.bytes += tensor.bytes.size();
  }
  return types;
}

uint32_t blocks_of(uint32_t tokens) {
  return static_cast<uint32_t>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

// As the scheduler cuts and counts. Errors: kInvalidArgument (it cannot be cut so).
Result<std::vector<StageNeed>> stages_of(const LoadedModel& model, const InspectCommand& options) {
  DeploymentOptions deployment;
  deployment.stages = options.stages;
  deployment.kv_blocks = options.streams * blocks_of(options.context);
  TROUPE_TRY(const ReplicaSpec spec, replica_spec(deployment, model));
  deployment.kv_blocks = 0;
  TROUPE_TRY(const ReplicaSpec bare, replica_spec(deployment, model));
  PlacementRequest request;
  request.layers = spec.layers;
  request.layer_bytes = bare.layer_bytes;
  request.embedding_bytes = spec.embedding_bytes;
  request.head_bytes = spec.head_bytes;
  request.layer_cost = spec.layer_cost;
  request.head_cost = spec.head_cost;
  request.stages = spec.stages;
  TROUPE_TRY(const std::vector<LayerRange> split, split_layers(request));
  std::vector<StageNeed> needs;
  for (uint32_t stage = 0; stage < split.size(); ++stage) {
    const LayerRange layers = split[stage];
    const uint64_t kv = (spec.layer_bytes - bare.layer_bytes) * (layers.last - layers.first);
    const bool last = stage + 1 == split.size();
    needs.push_back(
        {layers, stage_bytes(request, stage, layers), kv, last ? 0 : spec.journal_bytes});
  }
  return needs;
}

uint64_t kv_bytes_a_token(const ModelConfig& config) {
  return uint64_t{2} * sizeof(uint16_t) * config.kv_columns() * config.layers;
}

Json json_of(const ModelConfig& config) {
  return {{"architecture", config.architecture},
          {"name", config.name},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"ffn", config.ffn},
          {"vocabulary", config.vocabulary},
          {"context_max", config.context_max},
          {"tied_head", config.tied_head},
          {"kv_bytes_per_token", kv_bytes_a_token(config)}};
}

void print_json(const InspectCommand& options, const GgufFile& file,
                const Result<ModelConfig>& config, const Result<std::vector<StageNeed>>& stages) {
  Json document = {
      {"path", options.model},         {"version", file.version()},
      {"alignment", file.alignment()}, {"parts", file.parts()},
      {"bytes", file.total_bytes()},   {"content", file.content_id()},
      {"runs", config.ok()},           {"why_not", config.ok() ? "" : config.error().message}};
  Json types = Json::object();
  for (const auto& [type, share] : types_of(file))
    types[type] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
  document["types"] = types;
  if (config.ok()) document["model"] = json_of(config.value());
  if (stages.ok()) {
    Json list = Json::array();
    for (const StageNeed& need : stages.value())
      list.push_back({{"first_layer", need.layers.first},
                      {"last_layer", need.layers.last - 1},
                      {"weight_bytes", need.weights},
                      {"kv_bytes", need.kv},
                      {"journal_bytes", need.journal}});
    document["stages"] = list;
  }
  document["metadata"] = metadata_json(file);
  document["tensors"] = tensors_json(file);
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_model(const ModelConfig& config) {
  fmt::print("  {} layers, hidden {}, {} heads of {} ({} for keys and values), ffn {}\n",
             config.layers, config.hidden, config.heads, config.head_dim, config.kv_heads,
             config.ffn);
  fmt::print("  vocabulary {}, made for {} tokens of context{}\n", config.vocabulary,
             config.context_max, config.tied_head ? ", the head is the embedding" : "");
}

void print_stages(const InspectCommand& options, const std::vector<StageNeed>& needs) {
  Table table({{"stage", true},
               {"layers"},
               {"weights", true},
               {"KV cache", true},
               {"journal", true},
               {"in all", true}});
  StageNeed sum;
  for (size_t stage = 0; stage < needs.size(); ++stage) {
    const StageNeed& need = needs[stage];
    table.add({{std::to_string(stage), true},
               {fmt::format("{}-{}", need.layers.first, need.layers.last - 1)},
               {human_bytes(need.weights), true},
               {human_bytes(need.kv), true},
               {human_bytes(need.journal), true},
               {human_bytes(need.all()), true}});
    sum.weights += need.weights;
    sum.kv += need.kv;
    sum.journal += need.journal;
  }
  table.add({{"all", true},
             {""},
             {human_bytes(sum.weights), true},
             {human_bytes(sum.kv), true},
             {human_bytes(sum.journal), true},
             {human_bytes(sum.all()), true}});
  fmt::print("\ncut into {}, for {} streams of {} tokens, at most\n{}",
             needs.size() == 1 ? "one stage" : fmt::format("{} stages", needs.size()),
             options.streams, options.context, table.text("  "));
}

void print_contexts(const ModelConfig& config) {
  std::string line;
  for (uint32_t context = 1024; context < config.context_max && context <= 1U << 20; context *= 4)
    line += fmt::format("{}: {}, ", context, human_bytes(kv_bytes_a_token(config) * context));
  line += fmt::format("{}: {}", config.context_max,
                      human_bytes(kv_bytes_a_token(config) * config.context_max));
  fmt::print("\nKV cache of one stream by its tokens: {}\n", line);
}

int inspect(const InspectCommand& options) {
  const Result<std::string> path = model_path(options.model);
  if (!path.ok()) return report(path.error());
  const Result<GgufFile> opened = GgufFile::open(path.value());
  if (!opened.ok()) return report(opened.error());
  const GgufFile& file = opened.value();
  const Result<ModelConfig> config = read_model_config(file);
  Result<std::vector<StageNeed>> stages = Error{ErrorCode::kInvalidFile, "it does not run here"};
  if (config.ok()) stages = stages_of(LoadedModel{file, config.value(), {}}, options);
  if (config.ok() && !stages.ok()) return report_usage(stages.error().message);
  if (options.json) {
    print_json(options, file, config, stages);
    return kExitOk;
  }
  const std::string parts = file.parts() > 1 ? fmt::format(" in {} parts", file.parts()) : "";
  fmt::print("{}\n  GGUF version {}, {}{}, {} tensors:", printable(path.value()), file.version(),
             human_bytes(file.total_bytes()), parts, file.tensors().size());
  const char* comma = "";
  for (const auto& [type, share] : types_of(file)) {
    fmt::print("{} {} {} ({})", comma, share.tensors, type, human_bytes(share.bytes));
    comma = ",";
  }
  fmt::print("\n");
  if (config.ok()) {
    fmt::print("  runs here: {}, architecture {}\n", printable(config.value().name),
               config.value().architecture);
    print_model(config.value());
    print_stages(options, stages.value());
    print_contexts(config.value());
  } else {
    fmt::print("  {}: {}\n", styled("does not run here", Style::kBad),
               printable(config.error().message));
  }
  if (options.metadata) fmt::print("\nmetadata\n{}", metadata_text(file));
  if (options.tensors) fmt::print("\n{}", tensors_text(file));
  return kExitOk;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<InspectCommand>();
  CLI::App* command = app.add_subcommand(
      "inspect", "What a model file holds, whether it runs here, and what its stages would take");
  command->add_option("model", options->model, "A GGUF file, or a model that was pulled")
      ->required();
  command->add_option("--stages", options->stages, "Cut it into so many")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->add_option("--context", options->context, "Tokens of a stream, prompt included")
      ->check(CLI::Range(1U, kModelContextMax))
      ->capture_default_str();
  command->add_option("--streams", options->streams, "Streams at once")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_flag("--metadata", options->metadata, "Also every key of the file");
  command->add_flag("--tensors", options->tensors, "Also every tensor");
  command->add_flag("--json", options->json, "All of it as JSON");
  command->callback([options, &exit_code] { exit_code = inspect(*options); });
}

}  // namespace troupe::cli
