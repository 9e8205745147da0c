// Values of a chat template, and the budget that bounds what making them may cost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "models/chat_templates/syntax.h"
#include "models/chat_templates/text.h"

namespace troupe::chat {

inline constexpr uint32_t kValueDepthMax = 64;  // lists in lists
inline constexpr int64_t kRangeMax = 100000;    // as Jinja's sandbox has it

// What a rendering may still spend. Memory counts all that is ever made, not what lives.
struct Budget {
  uint64_t steps = 4'000'000;
  uint64_t bytes = 256ULL << 20;
  Result<void> work(uint64_t count);  // steps
  Result<void> search(uint64_t text_bytes,
                      uint64_t part_bytes);  // a search that is quadratic at worst
  Result<void> take(uint64_t byte_count);    // memory, and the time to write it
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kMacro,
  kBuiltin,
  kMethod,
  kLoop,
};

struct List;
struct Dict;
struct Macro;
struct Loop;
struct Method;
struct Frame;

class Value {
 public:
  Value() = default;
  static Value undefined(std::string_view name);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value text(Text value);
  static Value text(std::string_view bytes, bool trusted) { return text(Text::of(bytes, trusted)); }
  static Value builtin(std::string_view name);
  template <class T>
  static Value of(Kind kind, std::shared_ptr<T> object) {
    Value value(kind);
    value.object_ = std::move(object);
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::kInteger || kind_ == Kind::kFloat || is_bool(); }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_integer() const { return kind_ == Kind::kInteger || is_bool(); }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  int64_t integer() const { return integer_; }
  double real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_); }
  const Text& text() const { return *static_cast<const Text*>(object_.get()); }
  const List& list() const { return *static_cast<const List*>(object_.get()); }
  const Dict& dict() const { return *static_cast<const Dict*>(object_.get()); }  // and namespaces
  Dict& mutable_dict() const { return *static_cast<Dict*>(object_.get()); }      // namespaces only
  const Macro& macro() const { return *static_cast<const Macro*>(object_.get()); }
  Loop& loop() const { return *static_cast<Loop*>(object_.get()); }
  const Method& method() const { return *static_cast<const Method*>(object_.get()); }
  const void* address() const { return object_.get(); }

  bool truth() const;
  uint32_t depth() const;         // of lists in lists
  const char* type_name() const;  // Python's

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  int64_t integer_ = 0;
  double real_ = 0;
  std::shared_ptr<void> object_;
};

struct List {
  std::vector<Value> items;
  uint32_t depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order they were added
  std::unordered_map<std::string, size_t> index;
  uint32_t depth = 1;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  bool set(const Value& key, Value value);  // false: the key cannot be hashed
};

struct Macro {
  const Node* node = nullptr;
  Frame* frame = nullptr;  // where it was defined; the interpreter keeps it
};

struct Method {
  Value self;
  std::string name;
};

// The variable `loop`.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  uint32_t depth0 = 0;
  uint32_t items_depth = 1;
  const Node* recursive = nullptr;
  Frame* frame = nullptr;
  std::optional<std::string> changed;
};

Error wrong(std::string message);  // kInvalidArgument

// Errors: kInvalidArgument for nesting beyond kValueDepthMax, and the budget's.
Result<Value> make_list(Budget& budget, std::vector<Value> items, Kind kind = Kind::kList);
Result<Value> make_text(Budget& budget, Text text);
Result<void> put(Budget& budget, Dict& dict, const Value& key, Value value);
Result<Value> make_dict(Budget& budget, Dict dict);

Result<bool> equal(Budget& budget, const Value& a, const Value& b);
// Below, equal or above 0. An error for what has no order.
Result<int> order(Budget& budget, const Value& a, const Value& b);
Result<bool> contains(Budget& budget, const Value& container, const Value& item);
// What a loop goes over.
Result<std::vector<Value>> iterate(Budget& budget, const Value& value);

// Python's str() and repr().
Result<Text> to_text(Budget& budget, const Value& value);
Result<void> write_repr(Budget& budget, const Value& value, Text& out);
std::string float_repr(double value);

// Bytes of the code point at text[offset]; offset < size.
size_t code_point_bytes(std::string_view text, size_t offset);
// Offsets of all code points, and of the end.
std::vector<size_t> code_points(std::string_view text);

}  // namespace troupe::chat
