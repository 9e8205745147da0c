// Failure as a value. What can fail in a correct program (files, peers, users, memory of a device)
// returns Result<T>: a value, or an Error whose code says what the caller can do and whose message
// says what was seen and what was allowed, in lower case and without a full stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace troupe {

// Named after what the caller can do about it.
enum class ErrorCode : uint8_t {
  kInvalidArgument,    // the caller's request is wrong: mend it
  kInvalidFile,        // a file is not what it says: fetch or write it again
  kInvalidFrame,       // a peer sent bytes that make no sense: drop the frame or the peer
  kNotFound,           // no such thing: name another
  kAlreadyExists,      // someone was first: use what there is
  kConflict,           // a compare-and-swap lost: read again, then decide again
  kFenced,             // an older view or incarnation: stop and rejoin
  kUnavailable,        // not now: try again later or elsewhere
  kResourceExhausted,  // a stated limit was reached: wait, or raise the limit
  kDeadlineExceeded,   // it took too long: the outcome is unknown
  kCancelled,          // somebody asked for it to stop
  kDivergence,         // two executions of the same input differ: stop and report
  kIo,                 // the operating system refused
  kInternal,           // a bug on the other side
};

const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// "kind: message", for logs and for people.
inline std::string to_string(const Error& error) {
  return std::string(to_string(error.code)) + ": " + error.message;
}

// The same error with a few words in front that say what was being done.
inline Error with_context(Error error, const std::string& doing) {
  error.message = doing + ": " + error.message;
  return error;
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    TROUPE_CHECK(ok(), "value() of a failed result");
    return std::get<0>(state_);
  }
  const T& value() const& {
    TROUPE_CHECK(ok(), "value() of a failed result");
    return std::get<0>(state_);
  }
  T&& value() && {
    TROUPE_CHECK(ok(), "value() of a failed result");
    return std::get<0>(std::move(state_));
  }
  const Error& error() const {
    TROUPE_CHECK(!ok(), "error() of a successful result");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

// The outcome of an act that yields nothing.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const { TROUPE_CHECK(ok(), "value() of a failed result"); }
  const Error& error() const {
    TROUPE_CHECK(!ok(), "error() of a successful result");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

inline const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kInvalidFile:
      return "invalid file";
    case ErrorCode::kInvalidFrame:
      return "invalid frame";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kAlreadyExists:
      return "already exists";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kFenced:
      return "fenced";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDivergence:
      return "divergence";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace troupe

#define TROUPE_CONCAT_INNER(a, b) a##b
#define TROUPE_CONCAT(a, b) TROUPE_CONCAT_INNER(a, b)

// TROUPE_TRY(const uint32_t version, bytes.read_u32());   the value, or return the error
#define TROUPE_TRY(declaration, expression)                    \
  auto TROUPE_CONCAT(troupe_result_, __LINE__) = (expression); \
  if (!TROUPE_CONCAT(troupe_result_, __LINE__).ok())           \
    return TROUPE_CONCAT(troupe_result_, __LINE__).error();    \
  declaration = std::move(TROUPE_CONCAT(troupe_result_, __LINE__)).value()

// TROUPE_TRY_VOID(file.sync());   go on, or return the error
#define TROUPE_TRY_VOID(expression)                                  \
  do {                                                               \
    auto troupe_result_void = (expression);                          \
    if (!troupe_result_void.ok()) return troupe_result_void.error(); \
  } while (false)
