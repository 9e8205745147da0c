// A file mapped read-only into memory. Pages come in as they are touched, so a stage that reads
// only its own layers never loads the rest.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace troupe {

class MappedFile {
 public:
  // Errors: kNotFound, kInvalidFile (empty, or not a regular file), kIo.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  ByteSpan bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

  // Tells the kernel that a part will be read soon, or that its pages are not needed any more (they
  // can be read again from the file). Advice only: ranges outside the file are cut off.
  void will_need(size_t offset, size_t length) const;
  void dont_need(size_t offset, size_t length) const;

 private:
  MappedFile(std::string path, ByteSpan bytes) : path_(std::move(path)), bytes_(bytes) {}
  void advise(size_t offset, size_t length, int advice) const;

  std::string path_;
  ByteSpan bytes_;
};

}  // namespace troupe
