// From tokens to the tree, one method for each rule of Jinja's grammar: statements in parser.cpp,
// expressions in expressions.cpp. Recursion is bounded by kSyntaxDepthMax, and so is the tree.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "models/chat_templates/lexer.h"
#include "models/chat_templates/syntax.h"

namespace troupe::chat {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Up to a block that begins with one of the names, whose name is the current token then; up to
  // the end of the template if there are none.
  Result<Body> body(std::initializer_list<std::string_view> ends);

 private:
  // Statements.
  Result<NodePtr> statement();
  Result<NodePtr> if_block();
  Result<NodePtr> for_block();
  Result<NodePtr> set_block();
  Result<NodePtr> macro_block();
  Result<NodePtr> call_block();
  Result<NodePtr> filter_block();
  Result<NodePtr> with_block();
  Result<void> parameters(Node& node);
  Result<Body> body_to_end(std::string_view end);

  // Expressions.
  Result<NodePtr> expression(bool with_condition = true);
  Result<NodePtr> conditional(bool with_condition);
  Result<NodePtr> tuple(bool with_condition);
  Result<NodePtr> target();
  Result<NodePtr> binary(int level);
  Result<NodePtr> negation();
  Result<NodePtr> comparison();
  Result<NodePtr> unary(bool with_filter);
  Result<NodePtr> primary();
  Result<NodePtr> literal();
  Result<NodePtr> list();
  Result<NodePtr> dict();
  Result<NodePtr> postfix(NodePtr node);
  Result<NodePtr> subscript(NodePtr object);
  Result<NodePtr> slice_part();
  Result<NodePtr> filters(NodePtr node, bool only_filters);
  Result<NodePtr> test(NodePtr input);
  Result<void> arguments(Node& call);

  const Token& now() const { return tokens_[place_]; }
  void advance() {
    if (place_ + 1 < tokens_.size()) ++place_;
  }
  bool is_operator(std::string_view text) const {
    return now().kind == TokenKind::kOperator && now().text == text;
  }
  bool is_name(std::string_view text) const {
    return now().kind == TokenKind::kName && now().text == text;
  }
  bool accept(std::string_view text);  // an operator
  bool accept_name(std::string_view text);
  Result<void> expect(std::string_view text);
  Result<std::string> expect_name();
  Result<void> expect_close();
  Error expected(std::string_view what) const;
  NodePtr make(NodeKind kind) const;
  // With the depth of what is below; an error if that is too deep.
  Result<NodePtr> finish(NodePtr node) const;

  struct Deeper {
    explicit Deeper(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    uint32_t& depth_;
  };
  Result<void> check_depth() const;

  std::vector<Token> tokens_;
  size_t place_ = 0;
  uint32_t depth_ = 0;
};

}  // namespace troupe::chat
