#include "transport/control.h"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <tuple>

#include "transport/transport.h"

namespace troupe {
namespace {

// All fields of each body, so that one that is forgotten on the way shows.
auto fields(const NodeInventory& b) {
  return std::tuple(b.memory_bytes, b.memory_free_bytes, b.cores, b.stages_max, b.kernels,
                    b.software, b.process);
}
auto fields(const AssignStage& b) {
  const StageSpec& s = b.spec;
  return std::tuple(s.deployment, s.model_path, s.content_id, s.stage, s.stages, s.layers.first,
                    s.layers.last, s.kv_blocks, s.threads, s.rows_max, s.kernels, s.journal_bytes,
                    s.batcher);
}
auto fields(const StageReady& b) {
  return std::tuple(b.deployment, b.stage, b.layers.first, b.layers.last, b.incarnation,
                    b.data_address, b.process, b.weight_bytes, b.kv_bytes);
}
auto fields(const StageLost& b) {
  return std::tuple(b.deployment, b.stage, b.incarnation, b.cause, b.restarting);
}
auto fields(const Seat& s) {
  return std::tuple(s.node, s.node_incarnation, s.incarnation, s.layers.first, s.layers.last,
                    s.data_address, s.process);
}
auto fields(const InstallView& b) {
  std::vector<decltype(fields(Seat{}))> seats;
  for (const Seat& seat : b.view.seats) seats.push_back(fields(seat));
  std::vector<std::pair<uint32_t, decltype(fields(Seat{}))>> standbys;
  for (const Standby& standby : b.view.standbys)
    standbys.emplace_back(standby.stage, fields(standby.seat));
  return std::tuple(b.view.deployment, b.view.number, b.view.batcher, b.view.batcher_address, seats,
                    standbys);
}
auto fields(const ViewInstalled& b) {
  return std::tuple(b.deployment, b.view, b.held);
}
auto fields(const StopStage& b) {
  return std::tuple(b.deployment, b.stage);
}
auto fields(const StageFigures& b) {
  return std::tuple(b.deployment, b.stage, b.incarnation, b.micro_batches, b.rows, b.busy_ns,
                    b.idle_ns, b.hop_p50_ns, b.hop_p99_ns, b.step_p50_ns, b.step_p99_ns,
                    b.fenced_frames, b.garbage_frames, b.weight_bytes, b.kv_bytes, b.resident_bytes,
                    b.journal_bytes, b.standby, b.standby_behind);
}
auto fields(const InjectFault& b) {
  return std::tuple(b.deployment, b.stage, b.fault);
}
auto fields(const Evicted& b) {
  return std::tuple(b.why);
}
auto fields(const Leaving& b) {
  return std::tuple(b.why);
}
auto fields(const ControlError& b) {
  return std::tuple(b.code, b.message);
}
auto fields(const Acknowledged&) {
  return std::tuple();
}

std::vector<std::byte> address(size_t size) {
  return std::vector<std::byte>(size, std::byte{0xA5});
}

// Every field different from its default and from its neighbours.
std::vector<ControlBody> one_of_each() {
  const Seat seat{.node = "node-1/stage-2",
                  .node_incarnation = {31},
                  .incarnation = {32},
                  .layers = {3, 9},
                  .data_address = address(33),
                  .process = 34};
  return {NodeInventory{1ULL << 40, 2, 3, 4, "avx2", "0.1.0", 5},
          AssignStage{{"d", "/m/ödel.gguf", "0123", 1, 3, {4, 8}, 5, 6, 7, "reference", 8, {9}}},
          StageReady{"d", 2, {4, 8}, {1ULL << 63}, address(kAddressMax), 3, 4, 5},
          StageLost{"d", 2, {3}, "killed by signal 9", true},
          InstallView{{"d", {7}, {8}, address(9), {seat, seat}, {{1, seat}}}},
          ViewInstalled{"d", {7}, {{1, {{{5}, 6, 7, 8}, {{9}, 10, 0, 0}}}, {2, {}}}},
          StopStage{"d", 2},
          StageFigures{"d", 1, {2}, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, {18}, 19},
          InjectFault{"d", 1, "throw"},
          Evicted{"silent for 3 s"},
          Leaving{"SIGTERM"},
          ControlError{ErrorCode::kFenced, "view 3, now 4"},
          Acknowledged{}};
}

ControlMessage message(ControlBody body) {
  return {.call = 5, .answer = true, .body = std::move(body)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(control_messages)

BOOST_AUTO_TEST_CASE(every_body_comes_back_as_it_was) {
  const std::vector<ControlBody> bodies = one_of_each();
  BOOST_REQUIRE(bodies.size() == std::variant_size_v<ControlBody>);
  for (size_t i = 0; i < bodies.size(); ++i) {
    BOOST_REQUIRE(bodies[i].index() == i);
    const auto bytes = encode_control(message(bodies[i]));
    BOOST_REQUIRE_MESSAGE(bytes.ok(), "body " << i);
    const auto back = decode_control(bytes.value().view());
    BOOST_REQUIRE_MESSAGE(back.ok(), "body " << i << (back.ok() ? "" : back.error().message));
    BOOST_TEST(back.value().call == 5U);
    BOOST_TEST(back.value().answer);
    BOOST_REQUIRE(back.value().body.index() == i);
    std::visit(
        [&](const auto& body) {
          const auto& original = std::get<std::decay_t<decltype(body)>>(bodies[i]);
          BOOST_TEST((fields(body) == fields(original)), "body " << i);
        },
        back.value().body);
  }
}

BOOST_AUTO_TEST_CASE(every_error_code_comes_back) {
  for (uint8_t code = 0; code <= static_cast<uint8_t>(ErrorCode::kInternal); ++code) {
    const auto bytes = encode_control(message(ControlError{static_cast<ErrorCode>(code), "x"}));
    const auto back = decode_control(bytes.value().view());
    BOOST_REQUIRE(back.ok());
    BOOST_TEST((std::get<ControlError>(back.value().body).code == static_cast<ErrorCode>(code)));
  }
}

BOOST_AUTO_TEST_CASE(text_for_people_is_cut_and_cleaned_instead_of_refused) {
  const std::string text = "a\tb\xFF\x1B" + std::string(kControlTextMax - 6, 'x') + "\xC3\xA9tail";
  const auto back = decode_control(encode_control(message(Evicted{text})).value().view());
  BOOST_REQUIRE(back.ok());
  // The two bytes of é do not fit any more, so it is left out as a whole.
  BOOST_TEST(std::get<Evicted>(back.value().body).why ==
             "a b??" + std::string(kControlTextMax - 6, 'x'));
}

BOOST_AUTO_TEST_CASE(what_is_above_a_limit_is_refused_with_the_field_named) {
  const auto spec = [](auto change) {
    AssignStage body{{"d", "/m", "", 0, 1, {0, 1}, 1, 1, 1, "auto", 1, {2}}};
    change(body.spec);
    return ControlBody(body);
  };
  const auto view = [](auto change) {
    InstallView body{{"d", {1}, {2}, {}, {Seat{"n", {1}, {2}, {0, 1}, {}, 1}}, {}}};
    change(body.view);
    return ControlBody(body);
  };
  const std::pair<const char*, ControlBody> cases[] = {
      {"deployment", StopStage{"", 0}},
      {"deployment", StopStage{std::string(kDeploymentMax + 1, 'd'), 0}},
      {"deployment", StopStage{"a\nb", 0}},
      {"deployment", StopStage{"\xED\xA0\x80", 0}},
      {"stage", StopStage{"d", kStagesMax}},
      {"stages", spec([](StageSpec& s) { s.stages = kStagesMax + 1; })},
      {"stages", spec([](StageSpec& s) { s.stage = 1; })},
      {"model path", spec([](StageSpec& s) { s.model_path.clear(); })},
      {"model path", spec([](StageSpec& s) { s.model_path.assign(kModelPathMax + 1, 'm'); })},
      {"content id", spec([](StageSpec& s) { s.content_id.assign(129, 'c'); })},
      {"layers", spec([](StageSpec& s) {
         s.layers = {2, 1};
       })},
      {"layers", spec([](StageSpec& s) {
         s.layers = {0, kLayersMax + 1};
       })},
      {"kv blocks", spec([](StageSpec& s) { s.kv_blocks = (1U << 24) + 1; })},
      {"threads", spec([](StageSpec& s) { s.threads = 4097; })},
      {"rows", spec([](StageSpec& s) { s.rows_max = (1U << 20) + 1; })},
      {"kernels", spec([](StageSpec& s) { s.kernels.assign(65, 'k'); })},
      {"kernels", NodeInventory{1, 1, 1, 1, std::string(65, 'k'), "", 1}},
      {"software", NodeInventory{1, 1, 1, 1, "", std::string(257, 'k'), 1}},
      {"data address", StageReady{"d", 0, {0, 1}, {1}, address(kAddressMax + 1), 1, 1, 1}},
      {"seats", view([](View& v) { v.seats.clear(); })},
      {"seats", view([](View& v) { v.seats.resize(kStagesMax + 1, v.seats[0]); })},
      {"batcher address", view([](View& v) { v.batcher_address = address(kAddressMax + 1); })},
      {"data address", view([](View& v) { v.seats[0].data_address = address(kAddressMax + 1); })},
      {"node id", view([](View& v) { v.seats[0].node = "a b"; })},
      {"layers", view([](View& v) {
         v.seats[0].layers = {5, 4};
       })},
      {"fault", InjectFault{"d", 0, ""}}};
  for (const auto& [field, body] : cases) {
    const auto refused = encode_control(message(body));
    BOOST_REQUIRE_MESSAGE(!refused.ok(), field);
    BOOST_TEST((refused.error().code == ErrorCode::kInvalidArgument));
    BOOST_TEST(refused.error().message.find(field) != std::string::npos, refused.error().message);
  }
}

BOOST_AUTO_TEST_CASE(hostile_segment_tables_and_sizes_are_refused) {
  const auto table = [](std::initializer_list<uint32_t> entries, size_t words_after) {
    std::vector<std::byte> bytes(entries.size() * 4 + words_after * 8);
    std::memcpy(bytes.data(), std::data(entries), entries.size() * 4);
    return bytes;
  };
  const std::pair<const char*, std::vector<std::byte>> cases[] = {
      {"nothing", {}},
      {"not words", std::vector<std::byte>(12)},
      {"2^32 segments", table({0xFFFFFFFF, 0}, 0)},
      {"2^32 - 1 segments", table({0xFFFFFFFE, 0}, 4)},
      {"65 segments", table({64, 0}, 100)},
      {"table longer than message", table({7, 0}, 0)},
      {"segment longer than message", table({0, 0xFFFFFFFF}, 1)},
      {"segment shorter than message", table({0, 1}, 2)},
      {"two segments that overflow together", table({1, 0xFFFFFFFF, 0xFFFFFFFF, 0}, 2)},
      {"an empty segment", table({0, 0}, 0)},
      {"a root that points outside", table({0, 1, 0xFFFFFFFC, 0xFFFFFFFF}, 0)},
      {"too long", std::vector<std::byte>(kControlMessageMax + 8)}};
  for (const auto& [what, bytes] : cases) {
    const auto refused = decode_control(bytes);
    BOOST_REQUIRE_MESSAGE(!refused.ok(), what);
    BOOST_TEST((refused.error().code == ErrorCode::kInvalidFrame));
  }
}

BOOST_AUTO_TEST_CASE(node_ids_are_letters_digits_and_a_few_signs) {
  for (const char* good : {"n", "node-1", "node-2/stage-1", "A.b_c-9"})
    BOOST_TEST(check_node_id(good).ok());
  BOOST_TEST(check_node_id(std::string(64, 'x')).ok());
  for (const char* bad : {"", "a b", "n\n", "ä", "n:1", "a\\b"})
    BOOST_TEST(!check_node_id(bad).ok());
  BOOST_TEST(!check_node_id(std::string(65, 'x')).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe
