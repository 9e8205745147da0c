#include "actors/ledger_store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

namespace troupe::test {
namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-ledger-XXXXXX").string();
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return (path / "ledger.sqlite").string(); }
  std::filesystem::path path;
};

View view(uint64_t number) {
  View made;
  made.deployment = "d";
  made.number = ViewNumber{number};
  made.batcher = Incarnation{3};
  made.batcher_address = {std::byte{1}, std::byte{2}};
  made.seats.push_back({"node-1", Incarnation{4}, Incarnation{5}, {0, 10}, {std::byte{9}}, 77});
  return made;
}

RequestRecord record(const std::string& id) {
  RequestRecord made;
  made.id = id;
  made.model = "d";
  made.profile = "exact";
  made.prompt = {1, 2, 3'000'000'000U};
  made.max_tokens = 9;
  made.sampling = {
      .temperature = 0.5F, .top_p = 0.25F, .seed = ~uint64_t{0}, .top_k = 40, .min_p = 0.125F};
  made.created_unix_ms = 123;
  return made;
}

std::unique_ptr<LedgerStore> open(const std::string& path) {
  auto store = LedgerStore::open(path);
  BOOST_REQUIRE_MESSAGE(store.ok(), (store.ok() ? "" : store.error().message));
  return std::move(store).value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(actors_ledger_store)

BOOST_FIXTURE_TEST_CASE(a_view_goes_in_only_behind_its_predecessor, Folder) {
  const auto store = open(file());
  BOOST_TEST(!store->swap(view(2)).value());
  BOOST_TEST(store->swap(view(1)).value());
  BOOST_TEST(!store->swap(view(1)).value());
  BOOST_TEST(!store->swap(view(3)).value());
  BOOST_TEST(store->swap(view(2)).value());
  const auto newest = store->newest("d");
  BOOST_REQUIRE(newest.ok() && newest.value());
  BOOST_TEST(newest.value()->number.value == 2U);
  BOOST_TEST(newest.value()->seats[0].node == "node-1");
  BOOST_TEST(newest.value()->seats[0].process == 77U);
  BOOST_TEST(!store->newest("other").value().has_value());
}

BOOST_FIXTURE_TEST_CASE(of_two_writers_one_wins_each_view, Folder) {
  const auto first = open(file()), second = open(file());
  for (uint64_t number = 1; number <= 40; ++number) {
    const bool one = first->swap(view(number)).value();
    const bool two = second->swap(view(number)).value();
    BOOST_TEST((one != two));
  }
}

BOOST_FIXTURE_TEST_CASE(everything_outlives_the_process, Folder) {
  {
    const auto store = open(file());
    BOOST_REQUIRE(store->swap(view(1)).ok());
    BOOST_REQUIRE(store->create(record("a")).ok());
  }
  const auto store = open(file());
  BOOST_TEST(store->newest("d").value()->number.value == 1U);
  const auto again = store->create(record("a"));
  BOOST_REQUIRE(again.ok());
  BOOST_TEST(!again.value().created);
}

BOOST_FIXTURE_TEST_CASE(a_record_is_created_once_and_comes_back_as_it_was, Folder) {
  const auto store = open(file());
  BOOST_TEST(store->create(record("a")).value().created);
  RequestRecord other = record("a");
  other.prompt = {7};
  const auto second = store->create(other);
  BOOST_TEST(!second.value().created);
  const RequestRecord& kept = second.value().record;
  BOOST_TEST(kept.prompt == record("a").prompt);
  BOOST_TEST((kept.sampling == record("a").sampling));
  BOOST_TEST(kept.max_tokens == 9U);
}

BOOST_FIXTURE_TEST_CASE(old_finished_records_are_trimmed_running_ones_stay, Folder) {
  const auto store = open(file());
  for (int i = 0; i < 10; ++i) {
    RequestRecord made = record("r" + std::to_string(i));
    made.created_unix_ms = i;
    BOOST_REQUIRE(store->create(made).ok());
    if (i < 8) BOOST_REQUIRE(store->finish(made.id, "stop").ok());
  }
  BOOST_REQUIRE(store->trim(3).ok());
  BOOST_TEST(store->create(record("r0")).value().created);
  BOOST_TEST(!store->create(record("r7")).value().created);
  BOOST_TEST(!store->create(record("r9")).value().created);
}

BOOST_FIXTURE_TEST_CASE(a_file_that_is_no_ledger_is_an_error_in_words, Folder) {
  std::ofstream(file())
      << "this is no database, and it is long enough to be looked at as one........";
  const auto store = LedgerStore::open(file());
  BOOST_REQUIRE(!store.ok());
  BOOST_TEST(store.error().message.find("database") != std::string::npos, store.error().message);
  const auto nowhere = LedgerStore::open((path / "no" / "such").string());
  BOOST_REQUIRE(!nowhere.ok());
  BOOST_TEST(nowhere.error().message.find("ledger") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(a_file_of_an_earlier_version_is_read, Folder) {
  sqlite3* database = nullptr;
  BOOST_REQUIRE(::sqlite3_open(file().c_str(), &database) == SQLITE_OK);
  const char* const before =
      "CREATE TABLE requests (id TEXT PRIMARY KEY, model TEXT NOT NULL, profile TEXT NOT NULL, "
      "prompt BLOB NOT NULL, max_tokens INTEGER NOT NULL, temperature REAL NOT NULL, "
      "top_p REAL NOT NULL, seed INTEGER NOT NULL, ignore_end INTEGER NOT NULL, "
      "created_unix_ms INTEGER NOT NULL, finish TEXT NOT NULL);"
      "INSERT INTO requests VALUES ('old', 'd', 'exact', x'01000000', 9, 0.5, 0.25, 4, 0, 5, '')";
  BOOST_TEST(::sqlite3_exec(database, before, nullptr, nullptr, nullptr) == SQLITE_OK);
  ::sqlite3_close(database);
  for (int time = 0; time < 2; ++time) {
    const auto store = open(file());
    const auto old = store->create(record("old")).value();
    BOOST_TEST(!old.created);
    BOOST_TEST((old.record.sampling ==
                SamplingParameters{.temperature = 0.5F, .top_p = 0.25F, .seed = 4}));
    BOOST_TEST(store->create(record("new")).value().created == (time == 0));
  }
}

BOOST_FIXTURE_TEST_CASE(tokens_come_back_up_to_the_first_gap, Folder) {
  {
    const auto store = open(file());
    BOOST_REQUIRE(store->create(record("a")).ok());
    const std::vector<TokenRun> runs{{"a", 0, {{7, 70}, {8, ~uint64_t{0}}}},
                                     {"a", 2, {{9, 90}}},
                                     {"a", 4, {{11, 110}}},
                                     {"b", 3, {{1, 1}}}};
    BOOST_REQUIRE(store->log_tokens(runs).ok());
    BOOST_REQUIRE(store->log_tokens(std::vector<TokenRun>{{"a", 2, {{1000, 1}}}}).ok());
  }
  const auto store = open(file());
  const std::vector<LoggedToken> first{{7, 70}, {8, ~uint64_t{0}}, {9, 90}};
  BOOST_TEST((store->logged_tokens("a").value() == first));  // what was there stayed
  BOOST_TEST(store->logged_tokens("b").value().empty());
  BOOST_TEST(store->logged_tokens("never").value().empty());
  // Runs that overlap: a head that did not know how far the last one had come.
  BOOST_REQUIRE(store->log_tokens(std::vector<TokenRun>{{"a", 3, {{10, 100}, {11, 110}}}}).ok());
  BOOST_TEST(store->logged_tokens("a").value().size() == 5U);
}

BOOST_FIXTURE_TEST_CASE(damaged_tokens_are_not_believed, Folder) {
  const auto store = open(file());
  BOOST_REQUIRE(
      store->log_tokens(std::vector<TokenRun>{{"a", 0, {{7, 70}}}, {"a", 1, {{8, 80}}}}).ok());
  sqlite3* database = nullptr;
  BOOST_REQUIRE(::sqlite3_open(file().c_str(), &database) == SQLITE_OK);
  const char* const damage =
      "UPDATE tokens SET bytes = x'080000005100000000000000' WHERE first = 1";
  BOOST_TEST(::sqlite3_exec(database, damage, nullptr, nullptr, nullptr) == SQLITE_OK);
  BOOST_TEST(store->logged_tokens("a").value().size() == 1U);
  const char* const swapped = "UPDATE tokens SET first = 5 WHERE first = 0";
  BOOST_TEST(::sqlite3_exec(database, swapped, nullptr, nullptr, nullptr) == SQLITE_OK);
  ::sqlite3_close(database);
  BOOST_TEST(store->logged_tokens("a").value().empty());
}

BOOST_FIXTURE_TEST_CASE(tokens_go_with_their_record, Folder) {
  const auto store = open(file());
  for (const char* id : {"a", "b"}) {
    BOOST_REQUIRE(store->create(record(id)).ok());
    BOOST_REQUIRE(store->log_tokens(std::vector<TokenRun>{{id, 0, {{7, 70}}}}).ok());
  }
  BOOST_REQUIRE(store->finish("a", "stop").ok());
  BOOST_REQUIRE(store->trim(0).ok());
  BOOST_TEST(store->logged_tokens("a").value().empty());
  BOOST_TEST(store->logged_tokens("b").value().size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
