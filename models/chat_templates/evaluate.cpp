#include <fmt/format.h>

#include <algorithm>

#include "models/chat_templates/interpreter.h"

namespace troupe::chat {

Result<Value> Interpreter::evaluate(const Node& node) {
  const auto bounded = budget_.work(1);
  if (!bounded.ok()) return placed(bounded.error(), node);
  if (++depth_ > kRunDepthMax) {
    --depth_;
    return placed(wrong(fmt::format("more than {} levels of nesting", kRunDepthMax)), node);
  }
  auto value = evaluate_inner(node);
  --depth_;
  if (!value.ok()) return placed(value.error(), node);
  return value;
}

Result<Value> Interpreter::evaluate_inner(const Node& node) {
  switch (node.kind) {
    case NodeKind::kString:
      return make_text(budget_, Text::of(node.text, true));
    case NodeKind::kInteger:
      return Value::integer(node.integer);
    case NodeKind::kFloat:
      return Value::real(node.number);
    case NodeKind::kTrue:
    case NodeKind::kFalse:
      return Value::boolean(node.kind == NodeKind::kTrue);
    case NodeKind::kNone:
      return Value::none();
    case NodeKind::kName:
      return lookup(node.text);
    case NodeKind::kList:
    case NodeKind::kTuple:
      return evaluate_list(node);
    case NodeKind::kDict:
      return evaluate_dict(node);
    case NodeKind::kAttribute:
    case NodeKind::kItem:
    case NodeKind::kSlice:
      return evaluate_access(node);
    case NodeKind::kCall:
      return call(node, nullptr);
    case NodeKind::kFilter: {
      TROUPE_TRY(const Value input, evaluate(*node.kids[0]));
      TROUPE_TRY(const Arguments arguments, arguments_of(node));
      return apply_filter(budget_, node.text, input, arguments);
    }
    case NodeKind::kTest: {
      TROUPE_TRY(const Value input, evaluate(*node.kids[0]));
      TROUPE_TRY(const Arguments arguments, arguments_of(node));
      TROUPE_TRY(const bool holds, apply_test(budget_, node.text, input, arguments));
      return Value::boolean(holds);
    }
    case NodeKind::kNegative:
    case NodeKind::kPositive:
      return evaluate_sign(node);
    case NodeKind::kBinary: {
      TROUPE_TRY(const Value left, evaluate(*node.kids[0]));
      TROUPE_TRY(const Value right, evaluate(*node.kids[1]));
      return arithmetic(budget_, node.text, left, right);
    }
    case NodeKind::kConcatenate:
      return concatenate(node);
    case NodeKind::kCompare:
      return evaluate_compare(node);
    default:
      return evaluate_logic(node);
  }
}

Result<Value> Interpreter::evaluate_list(const Node& node) {
  std::vector<Value> items;
  for (const NodePtr& kid : node.kids) {
    TROUPE_TRY(Value item, evaluate(*kid));
    items.push_back(std::move(item));
  }
  return make_list(budget_, std::move(items),
                   node.kind == NodeKind::kList ? Kind::kList : Kind::kTuple);
}

Result<Value> Interpreter::evaluate_dict(const Node& node) {
  Dict dict;
  for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
    TROUPE_TRY(const Value key, evaluate(*node.kids[i]));
    TROUPE_TRY(Value value, evaluate(*node.kids[i + 1]));
    TROUPE_TRY_VOID(put(budget_, dict, key, std::move(value)));
  }
  return make_dict(budget_, std::move(dict));
}

// not, and, or, if else: what is not needed is not evaluated.
Result<Value> Interpreter::evaluate_logic(const Node& node) {
  TROUPE_TRY(Value value, evaluate(*node.kids[node.kind == NodeKind::kConditional ? 1 : 0]));
  if (node.kind == NodeKind::kNot) return Value::boolean(!value.truth());
  if (node.kind == NodeKind::kConditional) {
    if (value.truth()) return evaluate(*node.kids[0]);
    if (node.kids[2]) return evaluate(*node.kids[2]);
    return Value::undefined("an inline if without else");
  }
  for (size_t i = 1; i < node.kids.size(); ++i) {
    if (value.truth() == (node.kind == NodeKind::kOr)) return value;
    TROUPE_TRY(value, evaluate(*node.kids[i]));
  }
  return value;
}

Result<Value> Interpreter::evaluate_compare(const Node& node) {
  TROUPE_TRY(Value left, evaluate(*node.kids[0]));
  for (size_t i = 0; i < node.names.size(); ++i) {
    TROUPE_TRY(Value right, evaluate(*node.kids[i + 1]));
    const std::string& op = node.names[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      TROUPE_TRY(const bool same, equal(budget_, left, right));
      holds = same == (op == "==");
    } else if (op == "in" || op == "not in") {
      TROUPE_TRY(const bool inside, contains(budget_, right, left));
      holds = inside == (op == "in");
    } else {
      TROUPE_TRY(const int sign, order(budget_, left, right));
      holds =
          (sign < 0 && op[0] == '<') || (sign > 0 && op[0] == '>') || (sign == 0 && op.size() == 2);
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_access(const Node& node) {
  TROUPE_TRY(const Value object, evaluate(*node.kids[0]));
  if (node.kind == NodeKind::kAttribute) return attribute(object, node.text);
  if (node.kind == NodeKind::kItem) {
    TROUPE_TRY(const Value key, evaluate(*node.kids[1]));
    if (object.is(Kind::kLoop) && key.is(Kind::kText)) return attribute(object, key.text().bytes);
    return get_item(budget_, object, key);
  }
  std::array<Value, 3> parts = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!node.kids[i + 1]) continue;
    TROUPE_TRY(parts[i], evaluate(*node.kids[i + 1]));
  }
  return slice(budget_, object, parts[0], parts[1], parts[2]);
}

Result<Value> Interpreter::evaluate_sign(const Node& node) {
  TROUPE_TRY(const Value value, evaluate(*node.kids[0]));
  if (!value.is_number())
    return wrong(fmt::format("bad operand type for a sign: '{}'", value.type_name()));
  if (node.kind == NodeKind::kPositive)
    return value.is(Kind::kFloat) ? value : Value::integer(value.integer());
  if (value.is(Kind::kFloat)) return Value::real(-value.real());
  return arithmetic(budget_, "-", Value::integer(0), value);
}

Result<Value> Interpreter::concatenate(const Node& node) {
  Text out;
  for (const NodePtr& kid : node.kids) {
    TROUPE_TRY(const Value value, evaluate(*kid));
    TROUPE_TRY(const Text text, to_text(budget_, value));
    out.append(text);
  }
  return make_text(budget_, std::move(out));
}

Result<Value> Interpreter::attribute(const Value& object, std::string_view name) {
  if (!object.is(Kind::kLoop)) return get_attribute(budget_, object, name);
  const Loop& loop = object.loop();
  const auto count = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index - 1];
  if (name == "nextitem")
    return index + 1 == count ? Value::undefined("there is no next item")
                              : loop.items[loop.index + 1];
  if (name == "cycle" || name == "changed")
    return Value::of(Kind::kMethod, std::make_shared<Method>(Method{object, std::string(name)}));
  return Value::undefined(name);
}

}  // namespace troupe::chat
