#include "models/tokenizers/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "models/gguf.h"
#include "models/tokenizers/unicode.h"

namespace troupe {

namespace {

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteAlphabet {
  std::array<uint32_t, 256> code_point{};
  std::array<uint8_t, 0x100 + 68> byte{};  // by code point, where `known`
  std::array<bool, 0x100 + 68> known{};
};

constexpr ByteAlphabet make_alphabet() {
  ByteAlphabet alphabet;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t code_point = stands_for_itself(byte) ? byte : next++;
    alphabet.code_point[byte] = code_point;
    alphabet.byte[code_point] = static_cast<uint8_t>(byte);
    alphabet.known[code_point] = true;
  }
  return alphabet;
}

constexpr ByteAlphabet kAlphabet = make_alphabet();

// A token of the piece being encoded, linked to its neighbours. A merge keeps the left one and
// unlinks the right.
struct Symbol {
  uint32_t token;
  uint32_t previous, next;  // indices; kNone at the ends
};
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A pair that could merge when it was found. It is stale once either side has changed.
struct Candidate {
  uint32_t rank;
  uint32_t left;                     // index of the left symbol
  uint32_t right;                    // of the right one
  uint32_t left_token, right_token;  // as they were
  uint32_t merged;
  // For a heap whose top is the lowest rank, leftmost first.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

uint32_t code_point_of_byte(uint8_t byte) {
  return kAlphabet.code_point[byte];
}

std::optional<uint8_t> byte_of_code_point(uint32_t code_point) {
  if (code_point >= kAlphabet.known.size() || !kAlphabet.known[code_point]) return std::nullopt;
  return kAlphabet.byte[code_point];
}

Result<BytePairEncoder> BytePairEncoder::make(
    const std::unordered_map<std::string_view, uint32_t>& token_of,
    std::span<const std::string_view> merges) {
  BytePairEncoder encoder;
  const auto find = [&](std::string_view text) {
    const auto found = token_of.find(text);
    return found == token_of.end() ? kNoToken : found->second;
  };
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(spelling, code_point_of_byte(static_cast<uint8_t>(byte)));
    encoder.token_of_byte_[byte] = find(spelling);
  }
  encoder.merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const auto fail = [&](const char* why) {
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("merge {} '{}' {}", rank, printable(merge), why)};
    };
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos)
      return fail("is not two tokens with a space between");
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const uint32_t left_token = find(left), right_token = find(right), token = find(joined);
    if (left_token == kNoToken || right_token == kNoToken || token == kNoToken)
      return fail("names what is not in the vocabulary");
    const Merge value{static_cast<uint32_t>(rank), token};
    if (!encoder.merges_.emplace(pair_of(left_token, right_token), value).second)
      return fail("appears twice");
  }
  return encoder;
}

Result<void> BytePairEncoder::encode(std::string_view piece, std::vector<uint32_t>& tokens) const {
  std::vector<Symbol> symbols(piece.size());
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    if (token_of_byte_[byte] == kNoToken)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("byte {:#04x} has no token in the model's vocabulary", byte)};
    symbols[i] = {token_of_byte_[byte], i == 0 ? kNone : i - 1,
                  i + 1 == symbols.size() ? kNone : i + 1};
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](uint32_t left, uint32_t right) {
    if (left == kNone || right == kNone) return;
    const uint32_t left_token = symbols[left].token, right_token = symbols[right].token;
    const auto found = merges_.find(pair_of(left_token, right_token));
    if (found == merges_.end()) return;
    candidates.push(
        {found->second.rank, left, right, left_token, right_token, found->second.token});
  };
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    const Symbol& right = symbols[best.right];
    if (left.token != best.left_token || left.next != best.right || right.token != best.right_token)
      continue;  // stale
    left.token = best.merged;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    symbols[best.right].token = kNoToken;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (uint32_t i = 0; i < symbols.size() && i != kNone; i = symbols[i].next)
    tokens.push_back(symbols[i].token);
  return {};
}

}  // namespace troupe
