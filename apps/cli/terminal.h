// What a person sees: colours where there is a terminal, progress that rewrites its line there and
// prints plain lines elsewhere, tables with aligned columns.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/model_store/model_store.h"
#include "base/time.h"

namespace troupe::cli {

enum class Style { kPlain, kStrong, kFaint, kGood, kWarn, kBad };

// Plain where `stream` is no terminal or NO_COLOR is set.
std::string styled(const std::string& text, Style style, std::FILE* stream = stdout);
bool is_terminal(std::FILE* stream);
// Terminal control characters of a text from elsewhere made visible, so that it cannot move the
// cursor; line feeds and tabs stay.
std::string printable(const std::string& text);

std::string human_bytes(uint64_t bytes);        // "93.8 MiB"
std::string human_duration(Duration duration);  // "850 µs", "12.3 ms", "4.20 s", "3 min 20 s"

// Progress on standard error. On a terminal one line is rewritten; elsewhere each new step is a
// line, and of a counted step each quarter.
class ProgressLine : public PullObserver {
 public:
  ~ProgressLine() override { finish(); }
  void step(const std::string& text) override;
  void progress(uint64_t done, uint64_t total) override;
  void finish();  // leaves the last state standing and goes to the next line

 private:
  void draw(const std::string& rest);
  std::string text_;
  uint64_t quarter_ = 0;
  bool open_ = false;
};

// Columns as wide as their widest cell. A header without a word is not shown. Cells are plain text;
// a style is laid around the padded cell.
class Table {
 public:
  struct Cell {
    std::string text;
    bool right = false;
    Style style = Style::kPlain;
  };
  explicit Table(std::vector<Cell> header) : header_(std::move(header)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  std::string text(const std::string& indent) const;

 private:
  std::vector<Cell> header_;
  std::vector<std::vector<Cell>> rows_;
};

// Turns Ctrl-C and SIGTERM into a call on a thread of its own. Make it before other threads start:
// they inherit the blocked signals.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_interrupt);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  std::function<void()> on_interrupt_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace troupe::cli
