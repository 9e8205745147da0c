// The ledger's storage: the only durable thing of a cluster. SQLite in WAL mode, one file, one
// writer. No CAF here.
//
//   requests (id primary key, record fields, finish)     create-if-absent under the idempotency key
//   tokens   (request, first, bytes, digest)             a cache: a head that starts anew need not
//   generate again what is here, only compute it
//   views    (deployment, number, bytes)                 number v + 1 goes in only behind v: the
//   compare-and-swap
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/request_record.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/view.h"

struct sqlite3;

namespace troupe {

class LedgerStore {
 public:
  // Creates the file if there is none; ":memory:" keeps everything in memory. Errors: kIo with
  // SQLite's own words.
  static Result<std::unique_ptr<LedgerStore>> open(const std::string& path);
  ~LedgerStore();

  // The record that is there now under record.id, and whether it is the given one.
  struct Created {
    bool created = false;
    RequestRecord record;
  };
  Result<Created> create(const RequestRecord& record);
  // Of requests that have a record; what is there already stays. Best effort: a run that gets lost
  // makes those behind it useless, and no token wrong.
  Result<void> log_tokens(std::span<const TokenRun> runs);
  // All there are without a gap, and that are what was written.
  Result<std::vector<LoggedToken>> logged_tokens(const RequestId& id);
  Result<void> finish(const RequestId& id, const std::string& finish);
  // Old finished records beyond the newest `keep` are deleted.
  Result<void> trim(uint64_t keep);

  // The newest view; nothing if there is none yet.
  Result<std::optional<View>> newest(const std::string& deployment);
  // True: installed. False: the newest one is not number - 1.
  Result<bool> swap(const View& view);

 private:
  explicit LedgerStore(sqlite3* database) : database_(database) {}
  Error failure(const std::string& doing) const;
  Result<void> execute(const char* sql);
  Result<void> add_columns();
  Result<RequestRecord> find(const RequestId& id);

  sqlite3* database_;
};

// A view's bytes in the ledger: a control message, so that its decoder's checks serve here, too.
Result<SharedBuffer> encode_view(const View& view);
Result<View> decode_view(ByteSpan bytes);

}  // namespace troupe
