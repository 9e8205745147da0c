#include "apps/model_store/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe {

Result<std::string> sha256_of_file(const std::string& path,
                                   const std::function<void(uint64_t)>& progress) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file)
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("{}: {}", path, std::strerror(errno))};
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1)
    return Error{ErrorCode::kInternal, "OpenSSL offers no SHA-256"};
  std::vector<unsigned char> chunk(size_t{1} << 20);
  uint64_t read = 0;
  while (const size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    if (EVP_DigestUpdate(context.get(), chunk.data(), got) != 1)
      return Error{ErrorCode::kInternal, "OpenSSL's SHA-256 failed"};
    read += got;
    if (progress) progress(read);
  }
  if (std::ferror(file.get()))
    return Error{ErrorCode::kIo, fmt::format("{}: {}", path, std::strerror(errno))};
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_DigestFinal_ex(context.get(), digest, &length) != 1)
    return Error{ErrorCode::kInternal, "OpenSSL's SHA-256 failed"};
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace troupe
