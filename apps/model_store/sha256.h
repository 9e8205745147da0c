// SHA-256 of a file (OpenSSL): names model files across the world, where the file itself is not to
// be trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace troupe {

// 64 lower-case hexadecimal digits. `progress` (may be empty) gets the bytes read so far. Errors:
// kNotFound, kIo.
Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<void(uint64_t)>& progress = {});

}  // namespace troupe
