#include "transport/peer/link_messages.h"

#include <algorithm>

#include "schemas/common.capnp.h"
#include "schemas/link.capnp.h"
#include "transport/peer/packet.h"
#include "transport/schema_message.h"
#include "transport/wire_text.h"

namespace troupe {
namespace {

namespace schema = wire::link;

Error refused(std::string why) {
  return Error{ErrorCode::kInvalidArgument, std::move(why)};
}
Error garbage(std::string what) {
  return Error{ErrorCode::kInvalidFrame, std::move(what)};
}

std::string text_from(capnp::Text::Reader text) {
  return {text.cStr(), text.size()};
}

}  // namespace

Result<void> check_hello(const PeerHello& hello) {
  if (hello.protocol_min > hello.protocol_max)
    return refused(fmt::format("protocols {} to {}", hello.protocol_min, hello.protocol_max));
  if (hello.cluster_id.empty() || hello.cluster_id.size() > kClusterIdMax)
    return refused(fmt::format("cluster id of {} bytes, allowed 1 to {}", hello.cluster_id.size(),
                               kClusterIdMax));
  if (!is_clean_text(hello.cluster_id)) return refused("cluster id is not printable UTF-8");
  TROUPE_TRY_VOID(check_node_id(hello.node));
  if (!hello.incarnation) return refused("incarnation 0");
  if (hello.listen.size() > 256 || !is_clean_text(hello.listen))
    return refused("listen address is not up to 256 bytes of printable UTF-8");
  return {};
}

Result<void> check_compatible(const PeerHello& ours, const PeerHello& theirs) {
  if (theirs.protocol_max < ours.protocol_min || theirs.protocol_min > ours.protocol_max)
    return refused(fmt::format("node \"{}\" speaks protocols {} to {}, this one {} to {}",
                               theirs.node, theirs.protocol_min, theirs.protocol_max,
                               ours.protocol_min, ours.protocol_max));
  if (theirs.cluster_id != ours.cluster_id)
    return refused(fmt::format("node \"{}\" belongs to cluster \"{}\", this one to \"{}\"",
                               theirs.node, theirs.cluster_id, ours.cluster_id));
  if (theirs.node == ours.node)
    return refused(theirs.incarnation == ours.incarnation
                       ? fmt::format("node \"{}\" dialled itself", ours.node)
                       : fmt::format("another process has this node's id \"{}\"", ours.node));
  return {};
}

Result<SharedBuffer> encode_hello(const LinkHello& hello) {
  TROUPE_TRY_VOID(check_hello(hello.peer));
  return write_schema<schema::Hello>(payload_max(PacketKind::kHello),
                                     [&](schema::Hello::Builder to) {
                                       to.setProtocolMin(hello.peer.protocol_min);
                                       to.setProtocolMax(hello.peer.protocol_max);
                                       to.setClusterId(hello.peer.cluster_id);
                                       to.setNode(hello.peer.node);
                                       to.setIncarnation(hello.peer.incarnation.value);
                                       to.setListen(hello.peer.listen);
                                       to.setToken(hello.token);
                                     });
}

Result<LinkHello> decode_hello(ByteSpan bytes) {
  return read_schema<schema::Hello>(bytes, [](schema::Hello::Reader from) -> Result<LinkHello> {
    LinkHello hello{.peer = {.protocol_min = from.getProtocolMin(),
                             .protocol_max = from.getProtocolMax(),
                             .cluster_id = text_from(from.getClusterId()),
                             .node = text_from(from.getNode()),
                             .incarnation = {from.getIncarnation()},
                             .listen = text_from(from.getListen())},
                    .token = from.getToken()};
    const Result<void> checked = check_hello(hello.peer);
    if (!checked.ok()) return garbage("hello: " + checked.error().message);
    if (hello.token == 0) return garbage("hello: token 0");
    return hello;
  });
}

Result<SharedBuffer> encode_beat_hello(uint64_t token) {
  return write_schema<schema::BeatHello>(
      payload_max(PacketKind::kBeatHello),
      [token](schema::BeatHello::Builder to) { to.setToken(token); });
}

Result<uint64_t> decode_beat_hello(ByteSpan bytes) {
  return read_schema<schema::BeatHello>(bytes,
                                        [](schema::BeatHello::Reader from) -> Result<uint64_t> {
                                          if (from.getToken() == 0)
                                            return garbage("beat hello: token 0");
                                          return from.getToken();
                                        });
}

Result<SharedBuffer> encode_beat(const Beat& beat) {
  return write_schema<schema::Beat>(
      payload_max(PacketKind::kBeat), [&beat](schema::Beat::Builder to) {
        to.setNumber(beat.number);
        to.setHeard(beat.heard);
        const size_t count = std::min(beat.progress.size(), kBeatProgressMax);
        auto progress = to.initProgress(static_cast<uint32_t>(count));
        for (uint32_t i = 0; i < count; ++i) {
          progress[i].setStage(beat.progress[i].stage);
          progress[i].setStarted(beat.progress[i].started);
          progress[i].setFinished(beat.progress[i].finished);
        }
      });
}

Result<Beat> decode_beat(ByteSpan bytes) {
  return read_schema<schema::Beat>(bytes, [](schema::Beat::Reader from) -> Result<Beat> {
    const auto progress = from.getProgress();
    if (progress.size() > kBeatProgressMax)
      return garbage(fmt::format("beat with {} progress entries, limit {}", progress.size(),
                                 kBeatProgressMax));
    Beat beat{.number = from.getNumber(), .progress = {}, .heard = from.getHeard()};
    for (const auto entry : progress)
      beat.progress.push_back({.stage = entry.getStage(),
                               .started = entry.getStarted(),
                               .finished = entry.getFinished()});
    return beat;
  });
}

Result<SharedBuffer> encode_goodbye(const Error& why) {
  return write_schema<schema::Goodbye>(
      payload_max(PacketKind::kGoodbye), [&why](schema::Goodbye::Builder to) {
        to.initWhy().setCode(static_cast<uint8_t>(why.code));
        to.getWhy().setMessage(clean_text(why.message, kControlTextMax));
      });
}

Result<Goodbye> decode_goodbye(ByteSpan bytes) {
  return read_schema<schema::Goodbye>(bytes, [](schema::Goodbye::Reader from) -> Result<Goodbye> {
    const uint8_t code =
        std::min(from.getWhy().getCode(), static_cast<uint8_t>(ErrorCode::kInternal));
    const capnp::Text::Reader text = from.getWhy().getMessage();
    return Goodbye{{static_cast<ErrorCode>(code),
                    clean_text(std::string_view(text.cStr(), text.size()), kControlTextMax)}};
  });
}

}  // namespace troupe
