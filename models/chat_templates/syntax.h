// A chat template as a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace troupe::chat {

inline constexpr uint32_t kSyntaxDepthMax = 200;

enum class NodeKind : uint8_t {
  // Expressions. `kids` in the order they are written.
  kString,
  kInteger,
  kFloat,
  kTrue,
  kFalse,
  kNone,
  kName,
  kList,
  kTuple,
  kDict,       // key, value, key, value, …
  kAttribute,  // object; text: the name
  kItem,       // object, key
  kSlice,      // object, begin, end, step: each may be absent (null)
  kCall,       // callee, positional arguments; named arguments
  kFilter,     // input (null in a filter block), positional arguments; text: the name
  kTest,       // input, positional arguments; text: the name
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kBinary,       // text: + - * / // % **
  kConcatenate,  // ~, any number
  kCompare,      // operands, any number; names: the operators between them
  kConditional,  // value, condition, otherwise (may be null)
  // Statements.
  kText,         // text
  kOutput,       // expression
  kIf,           // conditions; bodies: one each, and perhaps that of else
  kFor,          // target, iterable, filter (may be null); bodies: loop, else; flag: recursive
  kSet,          // target, expression
  kSetBlock,     // target, filters or null; bodies: 1
  kMacro,        // text: name; names: parameters; kids: defaults, null where none; bodies: 1
  kCallBlock,    // the call; names, kids[1…]: parameters of caller; bodies: 1
  kFilterBlock,  // the filter; bodies: 1
  kScope,        // with (names, kids: variables) and generation; bodies: 1
  kBreak,
  kContinue,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Node {
  NodeKind kind = NodeKind::kNone;
  bool flag = false;
  uint32_t line = 1, column = 1;
  uint32_t depth = 1;  // of the tree below, at most kSyntaxDepthMax
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<NodePtr> kids;
  std::vector<std::pair<std::string, NodePtr>> named;
  std::vector<std::string> names;
  std::vector<Body> bodies;
};

// Errors: kInvalidFile, with line, column and what was expected.
Result<Body> parse_template(std::string_view source);

}  // namespace troupe::chat
