// Byte-level byte-pair encoding (Sennrich et al. 2016; bytes as in GPT-2). A piece starts as its
// bytes, each a token; then the adjacent pair with the lowest rank in the merge list becomes one
// token, leftmost first among equals, until no adjacent pair is in the list. Pairs wait in a heap
// and neighbours in a linked list, so a piece of n bytes costs O(n log n): no input makes it
// quadratic.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace troupe {

// GPT-2's spelling of bytes as characters: printable ones stand for themselves, the others for
// U+0100 to U+0143, so that token lists and merges are plain text without spaces.
uint32_t code_point_of_byte(uint8_t byte);
std::optional<uint8_t> byte_of_code_point(uint32_t code_point);

class BytePairEncoder {
 public:
  // `token_of` holds the tokens that text may become, in byte spelling; `merges` are "left right"
  // in rank order. Both are only read. kInvalidFile if a merge names what is no token, or appears
  // twice.
  static Result<BytePairEncoder> make(
      const std::unordered_map<std::string_view, uint32_t>& token_of,
      std::span<const std::string_view> merges);

  // Appends the tokens of a piece. kInvalidArgument, with the byte, if the vocabulary has no token
  // for one of its bytes; `tokens` is then as it was.
  Result<void> encode(std::string_view piece, std::vector<uint32_t>& tokens) const;

 private:
  static constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();
  struct Merge {
    uint32_t rank;
    uint32_t token;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15U) >> 20; }
  };
  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  std::array<uint32_t, 256> token_of_byte_{};
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
};

}  // namespace troupe
