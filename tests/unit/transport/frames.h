// Frames for tests.
#pragma once

#include <cstdint>

#include "base/digest.h"
#include "transport/frame.h"

namespace troupe::test {

// `bytes` is rounded down to whole float32; contents depend on `number`.
inline Frame activations(uint64_t number, size_t bytes) {
  Frame frame;
  const auto columns = static_cast<uint32_t>(bytes / sizeof(float));
  frame.header.kind = FrameKind::kActivations;
  frame.header.view = {1};
  frame.header.sender = {2};
  frame.header.receiver = {3};
  frame.header.edge_sequence = number;
  frame.header.micro_batch = {number};
  frame.header.hidden = columns;
  FrameSegment segment;
  segment.sequence = {7};
  segment.position = static_cast<uint32_t>(number);
  segment.rows = 1;
  segment.blocks = {1, 2, 3};
  segment.sample = true;
  segment.sampling = {0.5F, 0.9F, number, 40, 0.05F};
  frame.header.segments.push_back(segment);
  frame.payload = SharedBuffer::allocate(columns * sizeof(float));
  auto values = frame.payload.as_mutable<uint32_t>();
  uint32_t state = static_cast<uint32_t>(number) * 2654435761U + 1;
  for (uint32_t& value : values) {
    state = state * 1664525U + 1013904223U;
    value = state;
  }
  return frame;
}

// Whether it is what activations(number, …) makes.
inline bool is_activations(const Frame& frame, uint64_t number) {
  const Frame expected = activations(number, frame.payload.size());
  return frame.header.edge_sequence == number &&
         digest64(frame.payload.view()) == digest64(expected.payload.view());
}

inline Frame tokens(uint64_t number, uint32_t rows) {
  Frame frame;
  frame.header.kind = FrameKind::kTokens;
  frame.header.edge_sequence = number;
  FrameSegment segment;
  segment.sequence = {number};
  segment.rows = rows;
  for (uint32_t i = 0; i < rows; ++i) segment.tokens.push_back(i);
  frame.header.segments.push_back(segment);
  return frame;
}

}  // namespace troupe::test
