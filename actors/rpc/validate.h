// What a request may ask for. One place for every door (RPC, command line), so that each gives the
// same answer in the same words; the client library asks here before it sends anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "actors/rpc/requests.h"

namespace troupe {

constexpr size_t kRequestIdBytesMax = 128;
constexpr size_t kModelNameBytesMax = 256;
constexpr size_t kNodeIdBytesMax = 64;
constexpr size_t kRoleBytesMax = 32;
constexpr size_t kMessagesMax = 1024;
constexpr size_t kPromptBytesMax = 4U << 20;   // all messages of a chat together
constexpr size_t kPromptTokensMax = 1U << 20;  // what the model's context allows is checked later
constexpr uint32_t kGeneratedTokensMax = 1U << 20;

// 1 to 128 printable ASCII characters without spaces.
Result<void> validate_request_id(const RequestId& id);

// kInvalidArgument that says what was seen and what is allowed, or nothing.
Result<void> validate(const GenerateCall& call);
Result<void> validate(const DrainCall& call);
Result<void> validate(const MoveCall& call);
Result<void> validate(const StandbyCall& call);

// A random id for a client that gave none: 32 hexadecimal digits.
RequestId make_request_id();

}  // namespace troupe
