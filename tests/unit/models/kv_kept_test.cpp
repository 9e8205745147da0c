// KV memory that outlives its process: what a successor believes of it.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "models/kv_cache.h"

namespace troupe {
namespace {

const KvShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .blocks = 12};
constexpr uint64_t kKey = 77;

struct Memory {
  int descriptor = ::memfd_create("test", MFD_CLOEXEC);
  ~Memory() { ::close(descriptor); }
  KeptMemory kept(uint64_t key = kKey) const { return {.descriptor = descriptor, .key = key}; }
  KvCache open(uint64_t key = kKey) const { return KvCache::open(kShape, kept(key)).value(); }
  // The pages and what is behind them, as any process with the descriptor sees them.
  std::span<std::byte> bytes() const {
    const auto size = static_cast<size_t>(::lseek(descriptor, 0, SEEK_END));
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return {static_cast<std::byte*>(memory), size};
  }
};

// What the rows of a sequence are: a function of sequence and position, as a model's are.
std::vector<std::byte> row_of(SequenceId sequence, uint32_t position, size_t bytes) {
  std::mt19937_64 random(sequence.value * 100003 + position);
  std::vector<std::byte> row(bytes);
  for (std::byte& byte : row) byte = static_cast<std::byte>(random());
  return row;
}

void extend(KvCache& cache, SequenceId sequence, const std::vector<uint32_t>& table,
            uint32_t rows) {
  cache.claim(sequence, table);
  const uint32_t begin = cache.length(sequence);
  for (uint32_t position = begin; position < begin + rows; ++position)
    cache.write_rows(table, position, row_of(sequence, position, cache.row_bytes()));
  cache.filled(sequence, begin + rows);
}

// All that is held is what it must be.
void check_rows(const KvCache& cache) {
  for (const SequenceHolding& holding : cache.holdings())
    for (uint32_t position = 0; position < holding.length; ++position) {
      std::vector<std::byte> row(cache.row_bytes());
      cache.read_rows(holding.blocks, position, row);
      BOOST_TEST_REQUIRE((row == row_of(holding.sequence, position, row.size())),
                         "sequence " << holding.sequence.value << " position " << position);
    }
}

const SequenceId kA{5}, kB{6};

BOOST_AUTO_TEST_SUITE(kv_kept)

BOOST_AUTO_TEST_CASE(a_successor_holds_what_was_committed) {
  const Memory memory;
  {
    KvCache cache = memory.open();
    BOOST_TEST(cache.holdings().empty());
    extend(cache, kA, {3, 0, 7}, 150);
    extend(cache, kB, {9}, 10);
    // Written, but not committed: it was in the middle of a step.
    cache.write_rows(std::vector<uint32_t>{9}, 10, row_of(kB, 10, cache.row_bytes()));
  }
  KvCache cache = memory.open();
  BOOST_TEST(cache.length(kA) == 150U);
  BOOST_TEST(cache.length(kB) == 10U);
  BOOST_TEST(cache.blocks_rejected() == 0U);
  BOOST_TEST((cache.holdings()[0].blocks == std::vector<uint32_t>{3, 0, 7}));
  check_rows(cache);
  // And goes on with it.
  extend(cache, kA, {3, 0, 7, 1}, 60);
  BOOST_TEST(memory.open().length(kA) == 210U);
}

BOOST_AUTO_TEST_CASE(what_was_forgotten_or_taken_by_another_stays_away) {
  const Memory memory;
  KvCache cache = memory.open();
  extend(cache, kA, {1, 2}, 100);
  extend(cache, kB, {2}, 5);  // takes a block of the other: that one is forgotten
  BOOST_TEST(memory.open().length(kA) == 0U);
  BOOST_TEST(memory.open().length(kB) == 5U);
  cache.forget(kB);
  BOOST_TEST(memory.open().holdings().empty());
  extend(cache, kA, {1}, 3);
  cache.clear();
  BOOST_TEST(memory.open().holdings().empty());
}

BOOST_AUTO_TEST_CASE(rows_of_another_key_are_not_believed) {
  const Memory memory;
  KvCache cache = memory.open();
  extend(cache, kA, {1, 2}, 100);
  BOOST_TEST(memory.open(kKey + 1).holdings().empty());
  KvShape other = kShape;
  other.layers = 1;  // the same memory, read in another way
  check_rows(KvCache::open(other, memory.kept()).value());
  BOOST_TEST((KvCache::open(kShape, KeptMemory{.descriptor = 9999, .key = 1}).error().code ==
              ErrorCode::kIo));
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_is_found_wherever_it_is) {
  std::mt19937 random(4);
  uint32_t cut = 0;
  for (int round = 0; round < 300; ++round) {
    const Memory memory;
    {
      KvCache cache = memory.open();
      extend(cache, kA, {3, 0, 7}, 150);
      extend(cache, kB, {9}, 10);
    }
    const std::span<std::byte> bytes = memory.bytes();
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    ::munmap(bytes.data(), bytes.size());
    const KvCache cache = memory.open();
    check_rows(cache);
    cut += cache.length(kA) + cache.length(kB) < 160 ? 1 : 0;
  }
  BOOST_TEST(cut > 50U);
}

BOOST_AUTO_TEST_CASE(memory_full_of_nonsense_gives_nothing) {
  std::mt19937_64 random(9);
  const Memory memory;
  (void)memory.open();
  const std::span<std::byte> bytes = memory.bytes();
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  BOOST_TEST(memory.open().holdings().empty());
  // Records that name impossible places, all alike.
  std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
  BOOST_TEST(memory.open().holdings().empty());
  ::munmap(bytes.data(), bytes.size());
}

BOOST_AUTO_TEST_CASE(a_kill_at_any_moment_leaves_nothing_wrong) {
  std::mt19937 random(12);
  uint64_t held = 0;
  for (int round = 0; round < 60; ++round) {
    const Memory memory;
    const pid_t child = ::fork();
    if (child == 0) {
      KvCache cache = memory.open();
      std::mt19937 moves(static_cast<uint32_t>(round));
      std::vector<uint32_t> blocks(kShape.blocks);
      for (uint64_t next = 1;; ++next) {
        std::iota(blocks.begin(), blocks.end(), 0);
        std::shuffle(blocks.begin(), blocks.end(), moves);
        std::vector<uint32_t> table;
        for (uint32_t i = 0; i < 4; ++i) {
          table.push_back(blocks[i]);
          for (uint32_t step = 0; step < 8; ++step) extend(cache, SequenceId{next}, table, 8);
        }
        if (moves() % 3 == 0) cache.forget(SequenceId{next});
      }
    }
    ::usleep(static_cast<useconds_t>(200 + random() % 4000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const KvCache cache = memory.open();
    check_rows(cache);
    BOOST_TEST(cache.blocks_rejected() == 0U);
    for (const SequenceHolding& holding : cache.holdings()) held += holding.length;
  }
  BOOST_TEST(held > 1000U);  // else there was nothing to look at
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace troupe
