#include "actors/ledger_store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstring>
#include <utility>

#include "base/digest.h"
#include "transport/control.h"

namespace troupe {
namespace {

constexpr int kBusyTimeoutMs =
    2000;  // a killed predecessor's lock is gone at once; this is for backups

// A prepared statement with positional binds, finalised on every path.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    status_ = ::sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { ::sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& text(int index, const std::string& value) {
    return note(::sqlite3_bind_text(statement_, index, value.data(), static_cast<int>(value.size()),
                                    SQLITE_TRANSIENT));
  }
  Statement& integer(int index, int64_t value) {
    return note(::sqlite3_bind_int64(statement_, index, value));
  }
  Statement& real(int index, double value) {
    return note(::sqlite3_bind_double(statement_, index, value));
  }
  Statement& blob(int index, ByteSpan bytes) {
    return note(
        ::sqlite3_bind_blob64(statement_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT));
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int step() { return status_ == SQLITE_OK ? ::sqlite3_step(statement_) : status_; }

  std::string column_text(int index) {
    const auto* data = reinterpret_cast<const char*>(::sqlite3_column_text(statement_, index));
    return data ? std::string(data, static_cast<size_t>(::sqlite3_column_bytes(statement_, index)))
                : std::string();
  }
  int64_t column_integer(int index) { return ::sqlite3_column_int64(statement_, index); }
  double column_real(int index) { return ::sqlite3_column_double(statement_, index); }
  ByteSpan column_blob(int index) {
    return {static_cast<const std::byte*>(::sqlite3_column_blob(statement_, index)),
            static_cast<size_t>(::sqlite3_column_bytes(statement_, index))};
  }

 private:
  Statement& note(int status) {
    if (status_ == SQLITE_OK) status_ = status;
    return *this;
  }
  sqlite3_stmt* statement_ = nullptr;
  int status_ = SQLITE_OK;
};

ByteSpan bytes_of(const std::vector<uint32_t>& numbers) {
  return std::as_bytes(std::span(numbers));
}

std::vector<uint32_t> numbers_of(ByteSpan bytes) {
  std::vector<uint32_t> numbers(bytes.size() / sizeof(uint32_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(uint32_t));
  return numbers;
}

// A run's tokens as they are stored: token and digest of each, little-endian as the machine is.
constexpr size_t kLoggedBytes = sizeof(uint32_t) + sizeof(uint64_t);

std::vector<std::byte> bytes_of(const TokenRun& run) {
  std::vector<std::byte> bytes(run.tokens.size() * kLoggedBytes);
  std::byte* to = bytes.data();
  for (const LoggedToken& one : run.tokens) {
    std::memcpy(to, &one.token, sizeof one.token);
    std::memcpy(to + sizeof one.token, &one.logits_digest, sizeof one.logits_digest);
    to += kLoggedBytes;
  }
  return bytes;
}

LoggedToken logged_at(ByteSpan bytes, size_t index) {
  LoggedToken one;
  const std::byte* from = bytes.data() + index * kLoggedBytes;
  std::memcpy(&one.token, from, sizeof one.token);
  std::memcpy(&one.logits_digest, from + sizeof one.token, sizeof one.logits_digest);
  return one;
}

// Bound to its place, so that no run is taken for another's.
uint64_t run_digest(const RequestId& id, uint64_t first, ByteSpan bytes) {
  return digest64(bytes, digest64(std::as_bytes(std::span(id)), first));
}

constexpr const char* kSchema = R"sql(
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = NORMAL;
  CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, model TEXT NOT NULL, profile TEXT NOT NULL, prompt BLOB NOT NULL,
    max_tokens INTEGER NOT NULL, temperature REAL NOT NULL, top_p REAL NOT NULL,
    seed INTEGER NOT NULL, ignore_end INTEGER NOT NULL, created_unix_ms INTEGER NOT NULL,
    finish TEXT NOT NULL, top_k INTEGER NOT NULL DEFAULT 0, min_p REAL NOT NULL DEFAULT 0);
  CREATE INDEX IF NOT EXISTS requests_by_age ON requests (finish, created_unix_ms);
  CREATE TABLE IF NOT EXISTS tokens (
    request TEXT NOT NULL, first INTEGER NOT NULL, bytes BLOB NOT NULL, digest INTEGER NOT NULL,
    PRIMARY KEY (request, first)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS views (
    deployment TEXT NOT NULL, number INTEGER NOT NULL, bytes BLOB NOT NULL,
    PRIMARY KEY (deployment, number));
)sql";

}  // namespace

Result<SharedBuffer> encode_view(const View& view) {
  return encode_control(ControlMessage{0, false, InstallView{view}});
}

Result<View> decode_view(ByteSpan bytes) {
  TROUPE_TRY(ControlMessage message, decode_control(bytes));
  if (auto* install = std::get_if<InstallView>(&message.body)) return std::move(install->view);
  return Error{ErrorCode::kInvalidFile, "the ledger holds something else where a view should be"};
}

Result<std::unique_ptr<LedgerStore>> LedgerStore::open(const std::string& path) {
  sqlite3* database = nullptr;
  const int status =
      ::sqlite3_open_v2(path.c_str(), &database,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<LedgerStore> store(new LedgerStore(database));
  if (status != SQLITE_OK) return store->failure("opening " + path);
  ::sqlite3_busy_timeout(database, kBusyTimeoutMs);
  TROUPE_TRY_VOID(store->execute(kSchema));
  TROUPE_TRY_VOID(store->add_columns());
  return store;
}

// What a file of an earlier version lacks.
Result<void> LedgerStore::add_columns() {
  for (const auto& [name, sql] :
       {std::pair{"top_k", "ALTER TABLE requests ADD COLUMN top_k INTEGER NOT NULL DEFAULT 0"},
        std::pair{"min_p", "ALTER TABLE requests ADD COLUMN min_p REAL NOT NULL DEFAULT 0"}}) {
    Statement query(database_,
                    "SELECT COUNT(*) FROM pragma_table_info('requests') WHERE name = ?1");
    if (query.text(1, name).step() != SQLITE_ROW) return failure("reading the tables");
    if (query.column_integer(0) == 0) TROUPE_TRY_VOID(execute(sql));
  }
  return {};
}

LedgerStore::~LedgerStore() {
  ::sqlite3_close_v2(database_);
}

Error LedgerStore::failure(const std::string& doing) const {
  return Error{ErrorCode::kIo,
               fmt::format("ledger: {}: {}", doing,
                           database_ ? ::sqlite3_errmsg(database_) : "out of memory")};
}

Result<void> LedgerStore::execute(const char* sql) {
  if (::sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("setting up");
  return {};
}

Result<void> LedgerStore::log_tokens(std::span<const TokenRun> runs) {
  TROUPE_TRY_VOID(execute("BEGIN"));
  for (const TokenRun& run : runs) {
    Statement insert(database_, "INSERT OR IGNORE INTO tokens VALUES (?1, ?2, ?3, ?4)");
    const std::vector<std::byte> bytes = bytes_of(run);
    insert.text(1, run.id)
        .integer(2, run.first)
        .blob(3, bytes)
        .integer(4, static_cast<int64_t>(run_digest(run.id, run.first, bytes)));
    if (insert.step() == SQLITE_DONE) continue;
    const Error error = failure("keeping tokens");
    (void)execute("ROLLBACK");
    return error;
  }
  const auto done = execute("COMMIT");
  if (!done.ok()) (void)execute("ROLLBACK");
  return done;
}

Result<std::vector<LoggedToken>> LedgerStore::logged_tokens(const RequestId& id) {
  Statement query(database_,
                  "SELECT first, bytes, digest FROM tokens WHERE request = ?1 ORDER BY first");
  query.text(1, id);
  std::vector<LoggedToken> tokens;
  for (;;) {
    const int status = query.step();
    if (status == SQLITE_DONE) return tokens;
    if (status != SQLITE_ROW) return failure("reading tokens");
    const auto first = static_cast<uint64_t>(query.column_integer(0));
    const ByteSpan bytes = query.column_blob(1);
    if (first > tokens.size() ||
        static_cast<uint64_t>(query.column_integer(2)) != run_digest(id, first, bytes))
      return tokens;
    for (size_t i = tokens.size() - first; i < bytes.size() / kLoggedBytes; ++i)
      tokens.push_back(logged_at(bytes, i));
  }
}

Result<LedgerStore::Created> LedgerStore::create(const RequestRecord& record) {
  Statement insert(
      database_,
      "INSERT OR IGNORE INTO requests VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)");
  insert.text(1, record.id)
      .text(2, record.model)
      .text(3, record.profile)
      .blob(4, bytes_of(record.prompt))
      .integer(5, record.max_tokens)
      .real(6, static_cast<double>(record.sampling.temperature))
      .real(7, static_cast<double>(record.sampling.top_p))
      .integer(8, static_cast<int64_t>(record.sampling.seed))
      .integer(9, record.ignore_end ? 1 : 0)
      .integer(10, record.created_unix_ms)
      .text(11, record.finish)
      .integer(12, record.sampling.top_k)
      .real(13, static_cast<double>(record.sampling.min_p));
  if (insert.step() != SQLITE_DONE) return failure("recording a request");
  const bool created = ::sqlite3_changes(database_) == 1;
  TROUPE_TRY(auto found, find(record.id));
  return Created{created, std::move(found)};
}

Result<RequestRecord> LedgerStore::find(const RequestId& id) {
  Statement query(database_,
                  "SELECT id, model, profile, prompt, max_tokens, temperature, top_p, seed, "
                  "ignore_end, created_unix_ms, finish, top_k, min_p FROM requests WHERE id = ?1");
  if (query.text(1, id).step() != SQLITE_ROW) return failure("reading a request");
  RequestRecord record;
  record.id = query.column_text(0);
  record.model = query.column_text(1);
  record.profile = query.column_text(2);
  record.prompt = numbers_of(query.column_blob(3));
  record.max_tokens = static_cast<uint32_t>(query.column_integer(4));
  record.sampling.temperature = static_cast<float>(query.column_real(5));
  record.sampling.top_p = static_cast<float>(query.column_real(6));
  record.sampling.seed = static_cast<uint64_t>(query.column_integer(7));
  record.ignore_end = query.column_integer(8) != 0;
  record.created_unix_ms = query.column_integer(9);
  record.finish = query.column_text(10);
  record.sampling.top_k = static_cast<uint32_t>(query.column_integer(11));
  record.sampling.min_p = static_cast<float>(query.column_real(12));
  return record;
}

Result<void> LedgerStore::finish(const RequestId& id, const std::string& finish) {
  Statement update(database_, "UPDATE requests SET finish = ?2 WHERE id = ?1");
  if (update.text(1, id).text(2, finish).step() != SQLITE_DONE) return failure("ending a request");
  return {};
}

Result<void> LedgerStore::trim(uint64_t keep) {
  Statement remove(database_,
                   "DELETE FROM requests WHERE finish <> '' AND id NOT IN (SELECT id FROM requests "
                   "WHERE finish <> '' ORDER BY created_unix_ms DESC LIMIT ?1)");
  if (remove.integer(1, static_cast<int64_t>(keep)).step() != SQLITE_DONE)
    return failure("trimming requests");
  Statement orphans(database_, "DELETE FROM tokens WHERE request NOT IN (SELECT id FROM requests)");
  if (orphans.step() != SQLITE_DONE) return failure("trimming tokens");
  return {};
}

Result<std::optional<View>> LedgerStore::newest(const std::string& deployment) {
  Statement query(database_,
                  "SELECT bytes FROM views WHERE deployment = ?1 ORDER BY number DESC LIMIT 1");
  const int status = query.text(1, deployment).step();
  if (status == SQLITE_DONE) return std::optional<View>{};
  if (status != SQLITE_ROW) return failure("reading a view");
  TROUPE_TRY(View view, decode_view(query.column_blob(0)));
  return std::optional<View>{std::move(view)};
}

Result<bool> LedgerStore::swap(const View& view) {
  TROUPE_TRY(const SharedBuffer bytes, encode_view(view));
  // One statement: SQLite runs it whole or not at all, and the primary key refuses a second winner.
  Statement insert(database_,
                   "INSERT OR IGNORE INTO views SELECT ?1, ?2, ?3 WHERE ?2 - 1 = "
                   "(SELECT COALESCE(MAX(number), 0) FROM views WHERE deployment = ?1)");
  insert.text(1, view.deployment)
      .integer(2, static_cast<int64_t>(view.number.value))
      .blob(3, bytes.view());
  if (insert.step() != SQLITE_DONE) return failure("installing a view");
  const bool won = ::sqlite3_changes(database_) == 1;
  if (won) {
    // Old views are history nobody reads; a few stay for people.
    Statement remove(database_, "DELETE FROM views WHERE deployment = ?1 AND number + 16 < ?2");
    if (remove.text(1, view.deployment)
            .integer(2, static_cast<int64_t>(view.number.value))
            .step() != SQLITE_DONE)
      return failure("trimming views");
  }
  return won;
}

}  // namespace troupe
