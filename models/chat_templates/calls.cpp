#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "models/chat_templates/interpreter.h"

namespace troupe::chat {

Result<Arguments> Interpreter::arguments_of(const Node& node) {
  Arguments arguments;
  for (size_t i = 1; i < node.kids.size(); ++i) {
    TROUPE_TRY(Value value, evaluate(*node.kids[i]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, kid] : node.named) {
    TROUPE_TRY(Value value, evaluate(*kid));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Interpreter::filter(const Node& node, Value input) {
  if (node.kids[0]) {  // a filter behind another, in a filter block
    TROUPE_TRY(input, filter(*node.kids[0], std::move(input)));
  }
  TROUPE_TRY(const Arguments arguments, arguments_of(node));
  return apply_filter(budget_, node.text, input, arguments);
}

Result<Value> Interpreter::call(const Node& node, const Value* caller) {
  TROUPE_TRY(Value callee, evaluate(*node.kids[0]));
  TROUPE_TRY(Arguments arguments, arguments_of(node));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return call_value(callee, std::move(arguments));
}

Result<Value> Interpreter::call_value(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee, std::move(arguments));
    case Kind::kBuiltin:
      return call_builtin(callee.text().bytes, arguments);
    case Kind::kMethod: {
      const Method& method = callee.method();
      if (method.self.is(Kind::kLoop)) return call_loop(method.self, method.name, arguments);
      return call_method(budget_, method.self, method.name, arguments);
    }
    case Kind::kLoop:
      return call_loop(callee, "", arguments);
    case Kind::kUndefined:
      return wrong(
          fmt::format("'{}' is undefined", callee.address() != nullptr ? callee.text().bytes : ""));
    default:
      return wrong(fmt::format("'{}' object is not callable", callee.type_name()));
  }
}

Result<Value> Interpreter::call_macro(const Value& callee, Arguments arguments) {
  const Node& node = *callee.macro().node;
  TROUPE_TRY_VOID(budget_.take(512));
  auto inner = std::make_shared<Frame>();
  inner->parent = callee.macro().frame->shared_from_this();
  const size_t defaults = node.kind == NodeKind::kCallBlock ? 1 : 0;
  std::vector<Value> rest;
  for (size_t i = node.names.size(); i < arguments.positional.size(); ++i)
    rest.push_back(arguments.positional[i]);
  TROUPE_TRY(inner->variables["varargs"], make_list(budget_, std::move(rest), Kind::kTuple));
  Dict others;
  for (auto& [name, value] : arguments.named) {
    const bool known = name == "caller" ||
                       std::find(node.names.begin(), node.names.end(), name) != node.names.end();
    if (known)
      inner->variables[name] = value;
    else
      TROUPE_TRY_VOID(put(budget_, others, Value::text(name, true), value));
  }
  TROUPE_TRY(inner->variables["kwargs"], make_dict(budget_, std::move(others)));
  const std::shared_ptr<Frame> outer = std::exchange(frame_, inner);
  const auto bind = [&]() -> Result<void> {
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value& variable = inner->variables[node.names[i]];
      if (i < arguments.positional.size())
        variable = arguments.positional[i];
      else if (variable.is(Kind::kUndefined) && node.kids[i + defaults]) {
        TROUPE_TRY(Value value, evaluate(*node.kids[i + defaults]));
        inner->variables[node.names[i]] = std::move(value);
      }
    }
    return {};
  };
  const auto bound = bind();
  auto text = bound.ok() ? captured(node.bodies[0]) : Result<Text>(bound.error());
  frame_ = outer;
  if (!text.ok()) return text.error();
  return make_text(budget_, std::move(text).value());
}

Result<Value> Interpreter::call_builtin(std::string_view name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Value* message = arguments.get(0, "message");
    TROUPE_TRY(const Text text, to_text(budget_, message == nullptr ? Value() : *message));
    return wrong(text.bytes.substr(0, 1000));
  }
  if (name == "strftime_now") return strftime_now(arguments);
  if (name == "range") {
    std::vector<int64_t> numbers;
    for (const Value& value : arguments.positional) {
      if (!value.is_integer()) return wrong("range takes integers");
      numbers.push_back(value.integer());
    }
    if (numbers.empty() || numbers.size() > 3) return wrong("range takes 1 to 3 integers");
    const int64_t begin = numbers.size() == 1 ? 0 : numbers[0];
    const int64_t end = numbers.size() == 1 ? numbers[0] : numbers[1];
    const int64_t step = numbers.size() == 3 ? numbers[2] : 1;
    if (step == 0) return wrong("range with a step of 0");
    std::vector<Value> items;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      if (items.size() >= static_cast<size_t>(kRangeMax))
        return wrong(fmt::format("a range of more than {}", kRangeMax));
      items.push_back(Value::integer(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return make_list(budget_, std::move(items));
  }
  Dict dict;
  for (const Value& from : arguments.positional) {
    if (!from.is(Kind::kDict)) return wrong(fmt::format("{} takes mappings", name));
    for (const auto& [key, value] : from.dict().entries)
      TROUPE_TRY_VOID(put(budget_, dict, key, value));
  }
  for (const auto& [key, value] : arguments.named)
    TROUPE_TRY_VOID(put(budget_, dict, Value::text(key, true), value));
  if (name == "dict") return make_dict(budget_, std::move(dict));
  TROUPE_TRY_VOID(budget_.take(256));
  namespaces_.push_back(std::make_shared<Dict>(std::move(dict)));
  return Value::of(Kind::kNamespace, namespaces_.back());
}

Result<Value> Interpreter::strftime_now(const Arguments& arguments) {
  TROUPE_TRY(const Text* format, want_text(arguments.get(0, "format"), "strftime_now's format"));
  if (format->size() > 256) return wrong("strftime_now with a format of more than 256 bytes");
  const std::time_t time = unix_time_;
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return wrong("a time that has no date");
  std::array<char, 4096> buffer{};
  const size_t bytes = std::strftime(buffer.data(), buffer.size(), format->bytes.c_str(), &parts);
  return make_text(budget_, Text::of({buffer.data(), bytes}, false));
}

Result<Value> Interpreter::call_loop(const Value& value, std::string_view name,
                                     const Arguments& arguments) {
  Loop& loop = value.loop();
  if (name == "cycle") {
    if (arguments.positional.empty()) return wrong("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  if (name == "changed") {
    Text text;
    for (const Value& argument : arguments.positional)
      TROUPE_TRY_VOID(write_repr(budget_, argument, text));
    const bool changed = loop.changed != text.bytes;
    loop.changed = text.bytes;
    return Value::boolean(changed);
  }
  if (loop.recursive == nullptr) return wrong("loop(…) in a loop that is not recursive");
  if (arguments.positional.size() != 1) return wrong("loop(…) takes one argument");
  const Node& node = *loop.recursive;
  const std::shared_ptr<Frame> outer = frame_;
  frame_ = loop.frame->shared_from_this();
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  const auto flow = run_loop(node, arguments.positional[0], loop.depth0 + 1);
  out_ = outer_out;
  frame_ = outer;
  if (!flow.ok()) return flow.error();
  return make_text(budget_, std::move(text));
}

}  // namespace troupe::chat
