#include "models/chat_templates/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gguf.h"

namespace troupe::chat {

namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kOpenOutput:
      return "'{{'";
    case TokenKind::kCloseOutput:
      return "'}}'";
    case TokenKind::kOpenBlock:
      return "'{%'";
    case TokenKind::kCloseBlock:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", printable(token.text));
  }
}

}  // namespace

Error Parser::expected(std::string_view what) const {
  return {ErrorCode::kInvalidFile,
          fmt::format("chat template: {} where {} was expected{}", describe(now()), what,
                      at_place(now().line, now().column))};
}

bool Parser::accept(std::string_view text) {
  if (!is_operator(text)) return false;
  advance();
  return true;
}

bool Parser::accept_name(std::string_view text) {
  if (!is_name(text)) return false;
  advance();
  return true;
}

Result<void> Parser::expect(std::string_view text) {
  if (accept(text)) return {};
  return expected(fmt::format("'{}'", text));
}

Result<std::string> Parser::expect_name() {
  if (now().kind != TokenKind::kName) return expected("a name");
  std::string name = now().text;
  advance();
  return name;
}

Result<void> Parser::expect_close() {
  if (now().kind != TokenKind::kCloseBlock) return expected("'%}'");
  advance();
  return {};
}

NodePtr Parser::make(NodeKind kind) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = now().line;
  node->column = now().column;
  return node;
}

Result<void> Parser::check_depth() const {
  if (depth_ <= kSyntaxDepthMax) return {};
  return Error{ErrorCode::kInvalidFile,
               fmt::format("chat template: more than {} levels of nesting{}", kSyntaxDepthMax,
                           at_place(now().line, now().column))};
}

Result<NodePtr> Parser::finish(NodePtr node) const {
  uint32_t below = 0;
  const auto look = [&](const NodePtr& kid) {
    if (kid) below = std::max(below, kid->depth);
  };
  for (const NodePtr& kid : node->kids) look(kid);
  for (const auto& [name, kid] : node->named) look(kid);
  for (const Body& body : node->bodies)
    for (const NodePtr& kid : body) look(kid);
  node->depth = below + 1;
  if (node->depth > kSyntaxDepthMax)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("chat template: more than {} levels of nesting{}", kSyntaxDepthMax,
                             at_place(node->line, node->column))};
  return node;
}

Result<Body> Parser::body(std::initializer_list<std::string_view> ends) {
  const Deeper deeper(depth_);
  TROUPE_TRY_VOID(check_depth());
  Body result;
  while (now().kind != TokenKind::kEnd) {
    if (now().kind == TokenKind::kText) {
      NodePtr node = make(NodeKind::kText);
      node->text = now().text;
      advance();
      result.push_back(std::move(node));
    } else if (now().kind == TokenKind::kOpenOutput) {
      NodePtr node = make(NodeKind::kOutput);
      advance();
      TROUPE_TRY(NodePtr value, tuple(true));
      node->kids.push_back(std::move(value));
      if (now().kind != TokenKind::kCloseOutput) return expected("'}}'");
      advance();
      TROUPE_TRY(node, finish(std::move(node)));
      result.push_back(std::move(node));
    } else {
      advance();
      if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return is_name(end); }))
        return result;
      TROUPE_TRY(NodePtr node, statement());
      result.push_back(std::move(node));
    }
  }
  if (ends.size() != 0) return expected(fmt::format("a block '{}'", fmt::join(ends, "' or '")));
  return result;
}

Result<Body> Parser::body_to_end(std::string_view end) {
  TROUPE_TRY_VOID(expect_close());
  TROUPE_TRY(Body result, body({end}));
  advance();
  TROUPE_TRY_VOID(expect_close());
  return result;
}

Result<NodePtr> Parser::statement() {
  if (is_name("if")) return if_block();
  if (is_name("for")) return for_block();
  if (is_name("set")) return set_block();
  if (is_name("macro")) return macro_block();
  if (is_name("call")) return call_block();
  if (is_name("filter")) return filter_block();
  if (is_name("with") || is_name("generation")) return with_block();
  if (is_name("break") || is_name("continue")) {
    NodePtr node = make(is_name("break") ? NodeKind::kBreak : NodeKind::kContinue);
    advance();
    TROUPE_TRY_VOID(expect_close());
    return node;
  }
  return expected(
      "one of if, for, set, macro, call, filter, with, generation, raw, break, continue");
}

Result<NodePtr> Parser::if_block() {
  NodePtr node = make(NodeKind::kIf);
  while (true) {
    advance();
    TROUPE_TRY(NodePtr condition, tuple(false));
    node->kids.push_back(std::move(condition));
    TROUPE_TRY_VOID(expect_close());
    TROUPE_TRY(Body then, body({"elif", "else", "endif"}));
    node->bodies.push_back(std::move(then));
    if (!is_name("elif")) break;
  }
  if (accept_name("else")) {
    TROUPE_TRY_VOID(expect_close());
    TROUPE_TRY(Body otherwise, body({"endif"}));
    node->bodies.push_back(std::move(otherwise));
  }
  advance();
  TROUPE_TRY_VOID(expect_close());
  return finish(std::move(node));
}

Result<NodePtr> Parser::for_block() {
  NodePtr node = make(NodeKind::kFor);
  advance();
  TROUPE_TRY(NodePtr variable, target());
  node->kids.push_back(std::move(variable));
  if (!accept_name("in")) return expected("'in'");
  TROUPE_TRY(NodePtr iterable, tuple(false));
  node->kids.push_back(std::move(iterable));
  NodePtr filter;
  if (accept_name("if")) {
    TROUPE_TRY(filter, expression());
  }
  node->kids.push_back(std::move(filter));
  node->flag = accept_name("recursive");
  TROUPE_TRY_VOID(expect_close());
  TROUPE_TRY(Body loop, body({"endfor", "else"}));
  node->bodies.push_back(std::move(loop));
  if (accept_name("else")) {
    TROUPE_TRY_VOID(expect_close());
    TROUPE_TRY(Body otherwise, body({"endfor"}));
    node->bodies.push_back(std::move(otherwise));
  }
  advance();
  TROUPE_TRY_VOID(expect_close());
  return finish(std::move(node));
}

Result<NodePtr> Parser::set_block() {
  NodePtr node = make(NodeKind::kSet);
  advance();
  TROUPE_TRY(NodePtr variable, target());
  node->kids.push_back(std::move(variable));
  if (accept("=")) {
    TROUPE_TRY(NodePtr value, tuple(true));
    node->kids.push_back(std::move(value));
    TROUPE_TRY_VOID(expect_close());
    return finish(std::move(node));
  }
  node->kind = NodeKind::kSetBlock;
  NodePtr filter;
  if (is_operator("|")) {
    TROUPE_TRY(filter, filters(nullptr, true));
  }
  node->kids.push_back(std::move(filter));
  TROUPE_TRY(Body inside, body_to_end("endset"));
  node->bodies.push_back(std::move(inside));
  return finish(std::move(node));
}

// (a, b=1): names, and defaults behind what kids holds already.
Result<void> Parser::parameters(Node& node) {
  TROUPE_TRY_VOID(expect("("));
  while (!accept(")")) {
    if (!node.names.empty()) TROUPE_TRY_VOID(expect(","));
    TROUPE_TRY(std::string name, expect_name());
    NodePtr otherwise;
    if (accept("=")) {
      TROUPE_TRY(otherwise, expression());
    } else if (!node.kids.empty() && node.kids.back() && !node.names.empty()) {
      return expected("'=': a default behind one with a default");
    }
    node.names.push_back(std::move(name));
    node.kids.push_back(std::move(otherwise));
  }
  return {};
}

Result<NodePtr> Parser::macro_block() {
  NodePtr node = make(NodeKind::kMacro);
  advance();
  TROUPE_TRY(node->text, expect_name());
  TROUPE_TRY_VOID(parameters(*node));
  TROUPE_TRY(Body inside, body_to_end("endmacro"));
  node->bodies.push_back(std::move(inside));
  return finish(std::move(node));
}

Result<NodePtr> Parser::call_block() {
  NodePtr node = make(NodeKind::kCallBlock);
  advance();
  node->kids.emplace_back();
  if (is_operator("(")) TROUPE_TRY_VOID(parameters(*node));
  TROUPE_TRY(node->kids[0], expression());
  if (node->kids[0]->kind != NodeKind::kCall) return expected("a call");
  TROUPE_TRY(Body inside, body_to_end("endcall"));
  node->bodies.push_back(std::move(inside));
  return finish(std::move(node));
}

Result<NodePtr> Parser::filter_block() {
  NodePtr node = make(NodeKind::kFilterBlock);
  // The name is where a bar would be: put the first filter as if there were one.
  tokens_[place_].kind = TokenKind::kOperator;
  tokens_[place_].text = "|";
  TROUPE_TRY(NodePtr filter, filters(nullptr, true));
  node->kids.push_back(std::move(filter));
  TROUPE_TRY(Body inside, body_to_end("endfilter"));
  node->bodies.push_back(std::move(inside));
  return finish(std::move(node));
}

Result<NodePtr> Parser::with_block() {
  NodePtr node = make(NodeKind::kScope);
  const bool generation = is_name("generation");
  advance();
  while (!generation && now().kind != TokenKind::kCloseBlock) {
    if (!node->names.empty()) TROUPE_TRY_VOID(expect(","));
    TROUPE_TRY(std::string name, expect_name());
    TROUPE_TRY_VOID(expect("="));
    TROUPE_TRY(NodePtr value, expression());
    node->names.push_back(std::move(name));
    node->kids.push_back(std::move(value));
  }
  TROUPE_TRY(Body inside, body_to_end(generation ? "endgeneration" : "endwith"));
  node->bodies.push_back(std::move(inside));
  return finish(std::move(node));
}

Result<Body> parse_template(std::string_view source) {
  TROUPE_TRY(std::vector<Token> tokens, tokenise(source));
  return Parser(std::move(tokens)).body({});
}

}  // namespace troupe::chat
