#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Error{code, fmt::format("{}: {}", path, std::strerror(errno))};
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{ErrorCode::kInvalidFile, fmt::format("{}: not a regular file", path)};
  }
  if (status.st_size == 0) {
    ::close(fd);
    return Error{ErrorCode::kInvalidFile, fmt::format("{}: empty file", path)};
  }
  const auto size = static_cast<size_t>(status.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int map_errno = errno;
  ::close(fd);
  if (memory == MAP_FAILED)
    return Error{ErrorCode::kIo, fmt::format("{}: mmap: {}", path, std::strerror(map_errno))};
  return MappedFile(path, {static_cast<const std::byte*>(memory), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::will_need(size_t offset, size_t length) const {
  advise(offset, length, MADV_WILLNEED);
}

void MappedFile::dont_need(size_t offset, size_t length) const {
  advise(offset, length, MADV_DONTNEED);
}

void MappedFile::advise(size_t offset, size_t length, int advice) const {
  if (offset >= bytes_.size()) return;
  const size_t end = offset + std::min(length, bytes_.size() - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t start = offset / page * page;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + start, end - start, advice);
}

}  // namespace troupe
