#include "apps/cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace troupe::cli {
namespace {

const char* code_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kStrong:
      return "\033[1m";
    case Style::kFaint:
      return "\033[2m";
    case Style::kGood:
      return "\033[32m";
    case Style::kWarn:
      return "\033[33m";
    case Style::kBad:
      return "\033[31m";
  }
  return "";
}

// Code points: right for what we print; continuation bytes take no column.
size_t columns_of(const std::string& text) {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts));
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

std::string styled(const std::string& text, Style style, std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (style == Style::kPlain || (no_colour && *no_colour) || !is_terminal(stream)) return text;
  return code_of(style) + text + "\033[0m";
}

std::string printable(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // C1 controls are C2 80 … C2 9F in UTF-8; some terminals obey them.
    const bool c1 =
        c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((c < 32 && c != '\n' && c != '\t') || c == 127) {
      result += fmt::format("\\x{:02x}", c);
    } else if (c1) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : 1, kUnits[unit]);
}

std::string human_duration(Duration duration) {
  const double seconds = to_seconds(duration);
  if (seconds < 1e-3) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

void ProgressLine::draw(const std::string& rest) {
  if (is_terminal(stderr)) {
    fmt::print(stderr, "\r\033[K{}{}", text_, rest);
    open_ = true;
  } else {
    fmt::print(stderr, "{}{}\n", text_, rest);
  }
  std::fflush(stderr);
}

void ProgressLine::step(const std::string& text) {
  if (text == text_) return;
  finish();
  text_ = text;
  quarter_ = 0;
  draw("");
}

void ProgressLine::progress(uint64_t done, uint64_t total) {
  if (total == 0) return;
  done = std::min(done, total);
  const uint64_t quarter = done * 4 / total;
  if (is_terminal(stderr)) {
    constexpr uint64_t kWidth = 24;
    const auto filled = static_cast<size_t>(done * kWidth / total);
    draw(fmt::format("  [{}{}] {:3d} %  {} of {}", std::string(filled, '='),
                     std::string(kWidth - filled, ' '), done * 100 / total, human_bytes(done),
                     human_bytes(total)));
  } else if (quarter > quarter_) {
    draw(fmt::format(": {} %", done * 100 / total));
  }
  quarter_ = quarter;
}

void ProgressLine::finish() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

std::string Table::text(const std::string& indent) const {
  std::vector<size_t> widths;
  const auto widen = [&](const std::vector<Cell>& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(row[i].text));
  };
  widen(header_);
  for (const auto& row : rows_) widen(row);
  std::string result;
  const auto write = [&](const std::vector<Cell>& row, bool header) {
    result += indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const Cell& cell = row[i];
      const std::string padding(widths[i] - columns_of(cell.text), ' ');
      const bool right = i < header_.size() ? header_[i].right : cell.right;
      const std::string text = styled(cell.text, header ? Style::kFaint : cell.style);
      result += right ? padding + text : i + 1 == row.size() ? text : text + padding;
      if (i + 1 < row.size()) result += "  ";
    }
    result += "\n";
  };
  const auto named = [](const Cell& cell) { return !cell.text.empty(); };
  if (std::any_of(header_.begin(), header_.end(), named)) write(header_, true);
  for (const auto& row : rows_) write(row, false);
  return result;
}

InterruptWatch::InterruptWatch(std::function<void()> on_interrupt)
    : on_interrupt_(std::move(on_interrupt)) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this, signals] {
    while (!stopping_) {
      const timespec wait{.tv_sec = 0, .tv_nsec = 100'000'000};
      if (sigtimedwait(&signals, nullptr, &wait) > 0) on_interrupt_();
    }
  });
}

InterruptWatch::~InterruptWatch() {
  stopping_ = true;
  thread_.join();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace troupe::cli
