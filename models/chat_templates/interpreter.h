// Runs a chat template's tree. Every rendering is bounded: steps, memory, output and depth, so a
// template or a conversation can make it fail but never crash, hang or take more than that.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/chat_templates/operations.h"
#include "models/chat_templates/syntax.h"

namespace troupe::chat {

inline constexpr size_t kOutputBytesMax = 8 << 20;
inline constexpr uint32_t kRunDepthMax = 250;  // of expressions, blocks and macro calls together

// Variables of one scope; what is not found here is looked for in the scope around it.
struct Frame : std::enable_shared_from_this<Frame> {
  std::shared_ptr<Frame> parent;
  std::unordered_map<std::string, Value> variables;
};

class Interpreter {
 public:
  // `unix_time` is what strftime_now formats, in UTC; 0: there is no strftime_now.
  explicit Interpreter(int64_t unix_time) : unix_time_(unix_time) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Budget& budget() { return budget_; }
  // Errors: kInvalidArgument (raise_exception, wrong types), kResourceExhausted; both with line and
  // column. One call an interpreter.
  Result<Text> run(const Body& body, std::unordered_map<std::string, Value> variables);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  Result<Flow> run_body(const Body& body);
  Result<Flow> run_node(const Node& node);
  Result<Flow> run_if(const Node& node);
  Result<Flow> run_for(const Node& node);
  Result<Flow> run_loop(const Node& node, const Value& iterable, uint32_t depth0);
  Result<Flow> run_set(const Node& node);
  Result<Flow> run_scope(const Node& node);
  Result<void> run_call_block(const Node& node);
  Result<void> define_macro(const Node& node);
  Result<Text> captured(const Body& body);
  Result<void> assign(const Node& target, Value value);
  Result<void> write(const Text& text);

  // Expressions.
  Result<Value> evaluate(const Node& node);
  Result<Value> evaluate_inner(const Node& node);
  Result<Value> evaluate_list(const Node& node);
  Result<Value> evaluate_dict(const Node& node);
  Result<Value> evaluate_logic(const Node& node);
  Result<Value> evaluate_compare(const Node& node);
  Result<Value> evaluate_access(const Node& node);
  Result<Value> evaluate_sign(const Node& node);
  Result<Value> concatenate(const Node& node);
  Result<Value> filter(const Node& node, Value input);
  Result<Value> call(const Node& node, const Value* caller);
  Result<Value> call_value(const Value& callee, Arguments arguments);
  Result<Value> call_macro(const Value& callee, Arguments arguments);
  Result<Value> call_builtin(std::string_view name, const Arguments& arguments);
  Result<Value> call_loop(const Value& loop, std::string_view name, const Arguments& arguments);
  Result<Value> strftime_now(const Arguments& arguments);
  Result<Arguments> arguments_of(const Node& node);
  Result<Value> attribute(const Value& object, std::string_view name);
  Value lookup(const std::string& name) const;

  Error placed(Error error, const Node& node);
  void keep(const std::shared_ptr<Frame>& frame);

  int64_t unix_time_;
  Budget budget_;
  std::shared_ptr<Frame> frame_;
  Text* out_ = nullptr;
  uint32_t depth_ = 0;
  bool placed_ = false;  // an error has its place already: the innermost one
  // What values point to, and could hold each other in circles: emptied at the end.
  std::vector<std::shared_ptr<Frame>> frames_;
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

}  // namespace troupe::chat
