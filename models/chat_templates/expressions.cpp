#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "models/chat_templates/parser.h"

namespace troupe::chat {

Result<NodePtr> Parser::expression(bool with_condition) {
  return conditional(with_condition);
}

// value if condition else otherwise
Result<NodePtr> Parser::conditional(bool with_condition) {
  const Deeper deeper(depth_);
  TROUPE_TRY_VOID(check_depth());
  TROUPE_TRY(NodePtr value, binary(0));
  while (with_condition && is_name("if")) {
    NodePtr node = make(NodeKind::kConditional);
    advance();
    TROUPE_TRY(NodePtr condition, binary(0));
    NodePtr otherwise;
    if (accept_name("else")) {
      TROUPE_TRY(otherwise, conditional(true));
    }
    node->kids.push_back(std::move(value));
    node->kids.push_back(std::move(condition));
    node->kids.push_back(std::move(otherwise));
    TROUPE_TRY(value, finish(std::move(node)));
  }
  return value;
}

// One expression, or several with commas between.
Result<NodePtr> Parser::tuple(bool with_condition) {
  NodePtr node = make(NodeKind::kTuple);
  TROUPE_TRY(NodePtr first, expression(with_condition));
  if (!is_operator(",")) return first;
  node->kids.push_back(std::move(first));
  while (accept(",")) {
    const bool ends = is_operator(")") || now().kind == TokenKind::kCloseBlock ||
                      now().kind == TokenKind::kCloseOutput || is_name("in") || is_operator("=");
    if (ends) break;
    TROUPE_TRY(NodePtr next, expression(with_condition));
    node->kids.push_back(std::move(next));
  }
  return finish(std::move(node));
}

// What set and for assign to: a name, several, or an attribute of a namespace.
Result<NodePtr> Parser::target() {
  NodePtr tuple = make(NodeKind::kTuple);
  const bool brackets = accept("(");
  bool several = brackets;
  while (true) {
    NodePtr node = make(NodeKind::kName);
    TROUPE_TRY(node->text, expect_name());
    if (accept(".")) {
      NodePtr attribute = make(NodeKind::kAttribute);
      TROUPE_TRY(attribute->text, expect_name());
      attribute->kids.push_back(std::move(node));
      TROUPE_TRY(node, finish(std::move(attribute)));
    }
    tuple->kids.push_back(std::move(node));
    if (!accept(",")) break;
    several = true;
    if (now().kind != TokenKind::kName || is_name("in")) break;
  }
  if (brackets) TROUPE_TRY_VOID(expect(")"));
  if (!several) return std::move(tuple->kids[0]);
  return finish(std::move(tuple));
}

// Left to right, from the loosest: or, and, not, comparisons, + -, ~, * / // %, **.
Result<NodePtr> Parser::binary(int level) {
  if (level == 2) return negation();
  if (level == 7) return unary(true);
  static const std::array<std::vector<std::string_view>, 7> kOperators = {
      {{"or"}, {"and"}, {}, {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}};
  TROUPE_TRY(NodePtr left, binary(level + 1));
  const auto& operators = kOperators[static_cast<size_t>(level)];
  while (true) {
    const bool word = level < 2;
    const auto found = std::find_if(operators.begin(), operators.end(), [&](auto text) {
      return word ? is_name(text) : is_operator(text);
    });
    if (found == operators.end()) return left;
    const NodeKind kind = level == 0   ? NodeKind::kOr
                          : level == 1 ? NodeKind::kAnd
                          : level == 4 ? NodeKind::kConcatenate
                                       : NodeKind::kBinary;
    NodePtr node = make(kind);
    node->text = *found;
    advance();
    TROUPE_TRY(NodePtr right, binary(level + 1));
    // Chains of ~, and, or are long in real templates: one node, not a deep tree.
    const bool flat = kind != NodeKind::kBinary && left->kind == kind && !left->flag;
    if (flat) node = std::move(left);
    if (!flat) node->kids.push_back(std::move(left));
    node->kids.push_back(std::move(right));
    TROUPE_TRY(left, finish(std::move(node)));
  }
}

Result<NodePtr> Parser::negation() {
  const Deeper deeper(depth_);
  TROUPE_TRY_VOID(check_depth());
  if (!is_name("not")) return comparison();
  NodePtr node = make(NodeKind::kNot);
  advance();
  TROUPE_TRY(NodePtr value, negation());
  node->kids.push_back(std::move(value));
  return finish(std::move(node));
}

Result<NodePtr> Parser::comparison() {
  NodePtr node = make(NodeKind::kCompare);
  TROUPE_TRY(NodePtr first, binary(3));
  node->kids.push_back(std::move(first));
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", ">", "<=", ">="};
  while (true) {
    std::string name;
    const bool negated = is_name("not") && place_ + 1 < tokens_.size() &&
                         tokens_[place_ + 1].kind == TokenKind::kName &&
                         tokens_[place_ + 1].text == "in";
    if (negated) {
      advance();
      name = "not in";
    } else if (is_name("in")) {
      name = "in";
    } else if (std::any_of(kOperators.begin(), kOperators.end(),
                           [&](auto text) { return is_operator(text); })) {
      name = now().text;
    } else {
      break;
    }
    advance();
    TROUPE_TRY(NodePtr next, binary(3));
    node->names.push_back(std::move(name));
    node->kids.push_back(std::move(next));
  }
  if (node->names.empty()) return std::move(node->kids[0]);
  return finish(std::move(node));
}

Result<NodePtr> Parser::unary(bool with_filter) {
  const Deeper deeper(depth_);
  TROUPE_TRY_VOID(check_depth());
  NodePtr node;
  if (is_operator("-") || is_operator("+")) {
    NodePtr sign = make(is_operator("-") ? NodeKind::kNegative : NodeKind::kPositive);
    advance();
    TROUPE_TRY(NodePtr value, unary(false));
    sign->kids.push_back(std::move(value));
    TROUPE_TRY(node, finish(std::move(sign)));
  } else {
    TROUPE_TRY(node, primary());
  }
  TROUPE_TRY(node, postfix(std::move(node)));
  if (with_filter) return filters(std::move(node), false);
  return node;
}

Result<NodePtr> Parser::primary() {
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  if (accept("(")) {
    NodePtr node = make(NodeKind::kTuple);
    if (accept(")")) return node;
    TROUPE_TRY(node, tuple(true));
    TROUPE_TRY_VOID(expect(")"));
    // Brackets end a chain: (a ~ b) ~ c is the same, but (a or b) or c must not be told apart.
    return node;
  }
  return literal();
}

Result<NodePtr> Parser::literal() {
  NodePtr node = make(NodeKind::kName);
  const std::string& text = now().text;
  if (now().kind == TokenKind::kName) {
    if (text == "true" || text == "True") node->kind = NodeKind::kTrue;
    if (text == "false" || text == "False") node->kind = NodeKind::kFalse;
    if (text == "none" || text == "None") node->kind = NodeKind::kNone;
    node->text = text;
  } else if (now().kind == TokenKind::kString) {
    node->kind = NodeKind::kString;
    while (now().kind == TokenKind::kString) {
      node->text += now().text;
      advance();
    }
    return node;
  } else if (now().kind == TokenKind::kInteger) {
    node->kind = NodeKind::kInteger;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), node->integer);
    if (end.ec != std::errc()) return expected("an integer of 64 bits");
  } else if (now().kind == TokenKind::kFloat) {
    node->kind = NodeKind::kFloat;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), node->number);
    if (end.ec != std::errc()) return expected("a number that a double can hold");
  } else {
    return expected("an expression");
  }
  advance();
  return node;
}

Result<NodePtr> Parser::list() {
  NodePtr node = make(NodeKind::kList);
  advance();
  while (!accept("]")) {
    if (!node->kids.empty()) TROUPE_TRY_VOID(expect(","));
    if (accept("]")) break;
    TROUPE_TRY(NodePtr item, expression());
    node->kids.push_back(std::move(item));
  }
  return finish(std::move(node));
}

Result<NodePtr> Parser::dict() {
  NodePtr node = make(NodeKind::kDict);
  advance();
  while (!accept("}")) {
    if (!node->kids.empty()) TROUPE_TRY_VOID(expect(","));
    if (accept("}")) break;
    TROUPE_TRY(NodePtr key, expression());
    TROUPE_TRY_VOID(expect(":"));
    TROUPE_TRY(NodePtr value, expression());
    node->kids.push_back(std::move(key));
    node->kids.push_back(std::move(value));
  }
  return finish(std::move(node));
}

Result<NodePtr> Parser::postfix(NodePtr node) {
  while (true) {
    if (is_operator(".")) {
      NodePtr attribute = make(NodeKind::kAttribute);
      advance();
      if (now().kind == TokenKind::kInteger) {
        attribute->kind = NodeKind::kItem;
        TROUPE_TRY(NodePtr index, literal());
        attribute->kids.push_back(std::move(node));
        attribute->kids.push_back(std::move(index));
      } else {
        TROUPE_TRY(attribute->text, expect_name());
        attribute->kids.push_back(std::move(node));
      }
      TROUPE_TRY(node, finish(std::move(attribute)));
    } else if (is_operator("[")) {
      TROUPE_TRY(node, subscript(std::move(node)));
    } else if (is_operator("(")) {
      NodePtr call = make(NodeKind::kCall);
      call->line = node->line;
      call->column = node->column;
      call->kids.push_back(std::move(node));
      TROUPE_TRY_VOID(arguments(*call));
      TROUPE_TRY(node, finish(std::move(call)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> Parser::slice_part() {
  if (is_operator(":") || is_operator("]")) return NodePtr();
  return expression();
}

Result<NodePtr> Parser::subscript(NodePtr object) {
  NodePtr node = make(NodeKind::kItem);
  advance();
  node->kids.push_back(std::move(object));
  TROUPE_TRY(NodePtr first, slice_part());
  if (!first && !is_operator(":")) return expected("an expression");
  node->kids.push_back(std::move(first));
  if (accept(":")) {
    node->kind = NodeKind::kSlice;
    TROUPE_TRY(NodePtr end, slice_part());
    NodePtr step;
    if (accept(":")) {
      TROUPE_TRY(step, slice_part());
    }
    node->kids.push_back(std::move(end));
    node->kids.push_back(std::move(step));
  }
  TROUPE_TRY_VOID(expect("]"));
  return finish(std::move(node));
}

Result<void> Parser::arguments(Node& call) {
  TROUPE_TRY_VOID(expect("("));
  bool first = true;
  while (!accept(")")) {
    if (!first) TROUPE_TRY_VOID(expect(","));
    if (accept(")")) break;
    first = false;
    const bool named = now().kind == TokenKind::kName && place_ + 1 < tokens_.size() &&
                       tokens_[place_ + 1].kind == TokenKind::kOperator &&
                       tokens_[place_ + 1].text == "=";
    if (named) {
      std::string name = now().text;
      advance();
      advance();
      TROUPE_TRY(NodePtr value, expression());
      call.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!call.named.empty()) return expected("a named argument");
    TROUPE_TRY(NodePtr value, expression());
    call.kids.push_back(std::move(value));
  }
  return {};
}

// value | filter(…) is test(…) (…)
Result<NodePtr> Parser::filters(NodePtr node, bool only_filters) {
  while (true) {
    if (is_operator("|")) {
      NodePtr filter = make(NodeKind::kFilter);
      advance();
      TROUPE_TRY(filter->text, expect_name());
      filter->kids.push_back(std::move(node));
      if (is_operator("(")) TROUPE_TRY_VOID(arguments(*filter));
      TROUPE_TRY(node, finish(std::move(filter)));
    } else if (!only_filters && is_name("is")) {
      TROUPE_TRY(node, test(std::move(node)));
    } else if (!only_filters && is_operator("(")) {
      TROUPE_TRY(node, postfix(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> Parser::test(NodePtr input) {
  NodePtr node = make(NodeKind::kTest);
  advance();
  const bool negated = accept_name("not");
  TROUPE_TRY(node->text, expect_name());
  node->kids.push_back(std::move(input));
  if (is_name("is")) return expected("no second 'is': tests do not chain");
  const TokenKind kind = now().kind;
  const bool value =
      kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
      is_operator("[") || is_operator("{") ||
      (kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_operator("(")) {
    TROUPE_TRY_VOID(arguments(*node));
  } else if (value && !is_name("if")) {
    TROUPE_TRY(NodePtr argument, primary());
    TROUPE_TRY(argument, postfix(std::move(argument)));
    node->kids.push_back(std::move(argument));
  }
  TROUPE_TRY(node, finish(std::move(node)));
  if (!negated) return node;
  NodePtr opposite = make(NodeKind::kNot);
  opposite->kids.push_back(std::move(node));
  return finish(std::move(opposite));
}

}  // namespace troupe::chat
