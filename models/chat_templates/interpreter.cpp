#include "models/chat_templates/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/chat_templates/lexer.h"

namespace troupe::chat {

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) {
    space->index.clear();
    space->entries.clear();
  }
  for (const auto& frame : frames_) frame->variables.clear();
}

Error Interpreter::placed(Error error, const Node& node) {
  if (placed_) return error;
  placed_ = true;
  error.message = "chat template: " + error.message + at_place(node.line, node.column);
  return error;
}

// Macros and recursive loops point to the frame they were made in.
void Interpreter::keep(const std::shared_ptr<Frame>& frame) {
  if (frames_.empty() || frames_.back() != frame) frames_.push_back(frame);
}

Result<Text> Interpreter::run(const Body& body, std::unordered_map<std::string, Value> variables) {
  Text out;
  out_ = &out;
  frame_ = std::make_shared<Frame>();
  frame_->variables = std::move(variables);
  frames_.push_back(frame_);
  TROUPE_TRY_VOID(run_body(body));
  return out;
}

Result<void> Interpreter::write(const Text& text) {
  TROUPE_TRY_VOID(budget_.take(2 * text.size()));
  if (out_->size() + text.size() > kOutputBytesMax)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the chat template writes more than {} bytes", kOutputBytesMax)};
  out_->append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::run_body(const Body& body) {
  for (const NodePtr& node : body) {
    if (++depth_ > kRunDepthMax) {
      --depth_;
      return placed(wrong(fmt::format("more than {} levels of nesting", kRunDepthMax)), *node);
    }
    auto flow = run_node(*node);
    --depth_;
    if (!flow.ok()) return placed(flow.error(), *node);
    if (flow.value() != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_node(const Node& node) {
  TROUPE_TRY_VOID(budget_.work(1));
  switch (node.kind) {
    case NodeKind::kText:
      TROUPE_TRY_VOID(write(Text::of(node.text, true)));
      return Flow::kNext;
    case NodeKind::kOutput: {
      TROUPE_TRY(const Value value, evaluate(*node.kids[0]));
      TROUPE_TRY(const Text text, to_text(budget_, value));
      TROUPE_TRY_VOID(write(text));
      return Flow::kNext;
    }
    case NodeKind::kIf:
      return run_if(node);
    case NodeKind::kFor:
      return run_for(node);
    case NodeKind::kSet:
    case NodeKind::kSetBlock:
      return run_set(node);
    case NodeKind::kMacro:
      TROUPE_TRY_VOID(define_macro(node));
      return Flow::kNext;
    case NodeKind::kCallBlock:
      TROUPE_TRY_VOID(run_call_block(node));
      return Flow::kNext;
    case NodeKind::kFilterBlock: {
      TROUPE_TRY(Text inside, captured(node.bodies[0]));
      TROUPE_TRY(const Value value, filter(*node.kids[0], Value::text(std::move(inside))));
      TROUPE_TRY(const Text text, to_text(budget_, value));
      TROUPE_TRY_VOID(write(text));
      return Flow::kNext;
    }
    case NodeKind::kScope:
      return run_scope(node);
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      return wrong("an expression where a statement was expected");
  }
}

Result<Interpreter::Flow> Interpreter::run_if(const Node& node) {
  for (size_t i = 0; i < node.kids.size(); ++i) {
    TROUPE_TRY(const Value condition, evaluate(*node.kids[i]));
    if (condition.truth()) return run_body(node.bodies[i]);
  }
  if (node.bodies.size() > node.kids.size()) return run_body(node.bodies.back());
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_for(const Node& node) {
  TROUPE_TRY(const Value iterable, evaluate(*node.kids[1]));
  return run_loop(node, iterable, 0);
}

Result<Interpreter::Flow> Interpreter::run_loop(const Node& node, const Value& iterable,
                                                uint32_t depth0) {
  TROUPE_TRY(std::vector<Value> items, iterate(budget_, iterable));
  const std::shared_ptr<Frame> outer = frame_;
  const auto enter = [&](const Value& item) -> Result<void> {
    TROUPE_TRY_VOID(budget_.take(256));
    frame_ = std::make_shared<Frame>();
    frame_->parent = outer;
    return assign(*node.kids[0], item);
  };
  auto loop = std::make_shared<Loop>();
  for (Value& item : items) {
    bool chosen = true;
    if (node.kids[2]) {
      const auto entered = enter(item);
      auto condition = entered.ok() ? evaluate(*node.kids[2]) : Result<Value>(entered.error());
      frame_ = outer;
      if (!condition.ok()) return condition.error();
      chosen = condition.value().truth();
    }
    if (!chosen) continue;
    loop->items_depth = std::max(loop->items_depth, item.depth() + 1);
    loop->items.push_back(std::move(item));
  }
  if (loop->items.empty()) return node.bodies.size() > 1 ? run_body(node.bodies[1]) : Flow::kNext;
  loop->depth0 = depth0;
  if (node.flag) {
    loop->recursive = &node;
    loop->frame = outer.get();
    keep(outer);
  }
  for (size_t i = 0; i < loop->items.size(); ++i) {
    loop->index = i;
    auto entered = enter(loop->items[i]);
    frame_->variables["loop"] = Value::of(Kind::kLoop, loop);
    auto flow = entered.ok() ? run_body(node.bodies[0]) : Result<Flow>(entered.error());
    frame_ = outer;
    if (!flow.ok()) return flow;
    if (flow.value() == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Text> Interpreter::captured(const Body& body) {
  Text text;
  Text* const outer_out = std::exchange(out_, &text);
  const std::shared_ptr<Frame> outer = frame_;
  frame_ = std::make_shared<Frame>();
  frame_->parent = outer;
  const auto flow = run_body(body);
  frame_ = outer;
  out_ = outer_out;
  if (!flow.ok()) return flow.error();
  return text;
}

Result<void> Interpreter::assign(const Node& target, Value value) {
  if (target.kind == NodeKind::kName) {
    TROUPE_TRY_VOID(budget_.take(64));
    frame_->variables[target.text] = std::move(value);
    return {};
  }
  if (target.kind == NodeKind::kAttribute) {
    const Value space = lookup(target.kids[0]->text);
    if (!space.is(Kind::kNamespace))
      return wrong("cannot assign attribute on non-namespace object");
    TROUPE_TRY_VOID(budget_.take(128));
    space.mutable_dict().set(Value::text(target.text, true), std::move(value));
    return {};
  }
  TROUPE_TRY(std::vector<Value> items, iterate(budget_, value));
  if (items.size() != target.kids.size())
    return wrong(fmt::format("{} values for {} names", items.size(), target.kids.size()));
  for (size_t i = 0; i < items.size(); ++i)
    TROUPE_TRY_VOID(assign(*target.kids[i], std::move(items[i])));
  return {};
}

Result<Interpreter::Flow> Interpreter::run_set(const Node& node) {
  if (node.kind == NodeKind::kSet) {
    TROUPE_TRY(Value value, evaluate(*node.kids[1]));
    TROUPE_TRY_VOID(assign(*node.kids[0], std::move(value)));
    return Flow::kNext;
  }
  TROUPE_TRY(Text inside, captured(node.bodies[0]));
  TROUPE_TRY(Value value, make_text(budget_, std::move(inside)));
  if (node.kids[1]) {
    TROUPE_TRY(value, filter(*node.kids[1], std::move(value)));
  }
  TROUPE_TRY_VOID(assign(*node.kids[0], std::move(value)));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_scope(const Node& node) {
  auto inner = std::make_shared<Frame>();
  inner->parent = frame_;
  for (size_t i = 0; i < node.names.size(); ++i) {
    TROUPE_TRY(inner->variables[node.names[i]], evaluate(*node.kids[i]));
  }
  const std::shared_ptr<Frame> outer = std::exchange(frame_, std::move(inner));
  auto flow = run_body(node.bodies[0]);
  frame_ = outer;
  return flow;
}

Result<void> Interpreter::define_macro(const Node& node) {
  TROUPE_TRY_VOID(budget_.take(512));
  keep(frame_);
  frame_->variables[node.text] =
      Value::of(Kind::kMacro, std::make_shared<Macro>(Macro{&node, frame_.get()}));
  return {};
}

Result<void> Interpreter::run_call_block(const Node& node) {
  TROUPE_TRY_VOID(budget_.take(512));
  keep(frame_);
  const Value caller = Value::of(Kind::kMacro, std::make_shared<Macro>(Macro{&node, frame_.get()}));
  TROUPE_TRY(const Value value, call(*node.kids[0], &caller));
  TROUPE_TRY(const Text text, to_text(budget_, value));
  return write(text);
}

Value Interpreter::lookup(const std::string& name) const {
  for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
    const auto found = frame->variables.find(name);
    if (found != frame->variables.end()) return found->second;
  }
  for (const std::string_view builtin :
       {"range", "namespace", "dict", "raise_exception", "strftime_now"})
    if (name == builtin && (builtin != "strftime_now" || unix_time_ != 0))
      return Value::builtin(builtin);
  return Value::undefined(name);
}

}  // namespace troupe::chat
