// The golden vectors of the exact profile (I10, N9): two small problems in which every operator and
// every weight format takes part, with their digests. Whoever computes another digest computes
// other bits (a broken unit, a wrong compiler flag, a kernel that was changed) and must not execute
// a stage. It takes a few milliseconds.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/ops.h"

namespace troupe {

// Of profile exact/1. A change of this number is a change of the profile: everything that was
// generated under the old one comes out differently.
inline constexpr uint64_t kGoldenExact1 = 0x7e76c2ada73b0c4d;
// Of the weight formats that came after it, so that they did not change it.
inline constexpr uint64_t kGoldenFormats1 = 0x1d88f1dfb2673df7;

// Errors: those of Operators::pack().
Result<uint64_t> golden_digest(Operators& operators);
Result<uint64_t> golden_formats_digest(Operators& operators);

// Errors: kUnavailable, with the digest that differs and what it should be.
Result<void> check_golden(Operators& operators);

}  // namespace troupe
