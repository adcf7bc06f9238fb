// The parser of expressions. Operators in ascending precedence, as in Jinja: choice, or, and, not,
// comparison, + -, ~, * / // %, **, sign, postfix . [] () | is.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "text/chat_template/operations.h"
#include "text/chat_template/parser.h"

namespace ferry::text::chat {
namespace {

constexpr std::string_view kComparisons[] = {"==", "!=", "<=", ">=", "<", ">"};

bool is_reserved(std::string_view name) {
  static constexpr std::string_view kWords[] = {"and", "or", "not", "if", "else", "in", "is"};
  return std::ranges::count(kWords, name) > 0;
}

}  // namespace

bool TokenReader::take(TokenKind kind, std::string_view text) {
  if (!is(kind, text)) return false;
  next();
  return true;
}

Failure TokenReader::bad(std::string_view what) const {
  return bad_input(fmt::format("line {}: {}", line(), what));
}
Failure TokenReader::unsupported(std::string_view what) const {
  return fail(ErrorCode::kUnsupported, fmt::format("line {}: {} is not supported", line(), what));
}
Failure TokenReader::unexpected() const {
  switch (peek().kind) {
    case TokenKind::kEnd:
      return bad("the template ends too early");
    case TokenKind::kBlockEnd:
      return bad("unexpected end of a block tag");
    case TokenKind::kPrintEnd:
      return bad("unexpected '}}'");
    default:
      return bad(fmt::format("unexpected {}", quoted(peek().text)));
  }
}
Status TokenReader::expect_symbol(std::string_view text) {
  if (symbol(text)) return {};
  return unexpected();
}
Status TokenReader::expect(TokenKind kind) {
  if (peek().kind != kind) return unexpected();
  next();
  return {};
}
Result<std::string> TokenReader::expect_name() {
  if (peek().kind != TokenKind::kName || is_reserved(peek().text)) return unexpected();
  return next().text;
}

ExprPtr ExprParser::make(ExprKind kind, std::string text) const {
  auto node = std::make_unique<Expr>(Expr{.kind = kind, .line = in_.line()});
  node->text = std::move(text);
  return node;
}

Result<ExprPtr> ExprParser::finish(ExprPtr node) {
  for (const ExprPtr& child : node->children) {
    if (child) node->depth = std::max(node->depth, child->depth + 1);
  }
  for (const auto& [name, child] : node->named) {
    node->depth = std::max(node->depth, child->depth + 1);
  }
  if (node->depth > kMaxNodeDepth) return in_.bad("expressions are nested too deeply");
  return node;
}

Result<ExprPtr> ExprParser::expression(bool tuple) {
  ExprPtr first = FERRY_TRY(choice());
  if (!tuple || !in_.is(TokenKind::kOperator, ",")) return first;
  ExprPtr node = make(ExprKind::kList, "tuple");
  node->children.push_back(std::move(first));
  while (in_.symbol(",")) {
    const TokenKind kind = in_.peek().kind;
    if (kind == TokenKind::kBlockEnd || kind == TokenKind::kPrintEnd) break;
    node->children.push_back(FERRY_TRY(choice()));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::loop_list() {
  ExprPtr first = FERRY_TRY(any_of());
  if (in_.is(TokenKind::kOperator, ",")) return in_.unsupported("a loop over a bare tuple");
  return first;
}

Result<ExprPtr> ExprParser::choice() {
  if (++depth_ > kMaxNodeDepth) return in_.bad("expressions are nested too deeply");
  ExprPtr value = FERRY_TRY(any_of());
  while (in_.word("if")) {
    ExprPtr node = make(ExprKind::kChoice);
    node->children.push_back(std::move(value));
    node->children.push_back(FERRY_TRY(any_of()));
    ExprPtr otherwise;
    if (in_.word("else")) otherwise = FERRY_TRY(choice());
    node->children.push_back(std::move(otherwise));
    value = FERRY_TRY(finish(std::move(node)));
  }
  --depth_;
  return value;
}

Result<ExprPtr> ExprParser::binary(std::initializer_list<std::string_view> ops, TokenKind kind,
                                   Rule operand) {
  ExprPtr left = FERRY_TRY((this->*operand)());
  while (in_.peek().kind == kind && std::ranges::count(ops, in_.peek().text) > 0) {
    ExprPtr node = make(ExprKind::kBinary, in_.peek().text);
    in_.next();
    node->children.push_back(std::move(left));
    node->children.push_back(FERRY_TRY((this->*operand)()));
    left = FERRY_TRY(finish(std::move(node)));
  }
  return left;
}

Result<ExprPtr> ExprParser::any_of() {
  return binary({"or"}, TokenKind::kName, &ExprParser::all_of);
}
Result<ExprPtr> ExprParser::all_of() {
  return binary({"and"}, TokenKind::kName, &ExprParser::negation);
}
Result<ExprPtr> ExprParser::sum() {
  return binary({"+", "-"}, TokenKind::kOperator, &ExprParser::joined);
}
Result<ExprPtr> ExprParser::joined() {
  return binary({"~"}, TokenKind::kOperator, &ExprParser::product);
}
Result<ExprPtr> ExprParser::product() {
  return binary({"*", "/", "//", "%"}, TokenKind::kOperator, &ExprParser::power);
}
Result<ExprPtr> ExprParser::power() {
  return binary({"**"}, TokenKind::kOperator, &ExprParser::signed_value);
}

Result<ExprPtr> ExprParser::negation() {
  if (!in_.is(TokenKind::kName, "not")) return comparison();
  if (++depth_ > kMaxNodeDepth) return in_.bad("expressions are nested too deeply");
  ExprPtr node = make(ExprKind::kUnary, "not");
  in_.next();
  node->children.push_back(FERRY_TRY(negation()));
  --depth_;
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::comparison() {
  ExprPtr first = FERRY_TRY(sum());
  ExprPtr node;
  while (true) {
    std::string op;
    if (in_.peek().kind == TokenKind::kOperator &&
        std::ranges::count(kComparisons, in_.peek().text) > 0) {
      op = in_.next().text;
    } else if (in_.word("in")) {
      op = "in";
    } else if (in_.is(TokenKind::kName, "not") && in_.is(TokenKind::kName, "in", 1)) {
      in_.next();
      in_.next();
      op = "not in";
    } else {
      break;
    }
    if (!node) {
      node = make(ExprKind::kCompare);
      node->children.push_back(std::move(first));
    }
    node->ops.push_back(std::move(op));
    node->children.push_back(FERRY_TRY(sum()));
  }
  if (!node) return first;
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::unary(bool with_filters) {
  ExprPtr value;
  if (in_.is(TokenKind::kOperator, "-") || in_.is(TokenKind::kOperator, "+")) {
    if (++depth_ > kMaxNodeDepth) return in_.bad("expressions are nested too deeply");
    value = make(ExprKind::kUnary, in_.peek().text);
    in_.next();
    value->children.push_back(FERRY_TRY(unary(false)));
    value = FERRY_TRY(finish(std::move(value)));
    --depth_;
  } else {
    value = FERRY_TRY(primary());
  }
  value = FERRY_TRY(postfix(std::move(value)));
  return with_filters ? filters(std::move(value)) : Result<ExprPtr>(std::move(value));
}

Result<ExprPtr> ExprParser::primary() {
  switch (in_.peek().kind) {
    case TokenKind::kName:
      return name();
    case TokenKind::kString:
      return strings();
    case TokenKind::kInteger:
    case TokenKind::kReal:
      return number();
    case TokenKind::kOperator:
      break;
    default:
      return in_.unexpected();
  }
  if (in_.symbol("[")) return list("]", false);
  if (in_.symbol("{")) return dict();
  if (!in_.symbol("(")) return in_.unexpected();
  if (in_.symbol(")")) return make(ExprKind::kList, "tuple");
  ExprPtr first = FERRY_TRY(choice());
  if (in_.symbol(")")) return first;
  FERRY_RETURN_IF_ERROR(in_.expect_symbol(","));
  ExprPtr rest = FERRY_TRY(list(")", true));
  rest->children.insert(rest->children.begin(), std::move(first));
  return finish(std::move(rest));
}

Result<ExprPtr> ExprParser::name() {
  struct Word {
    std::string_view name;
    Value value;
  };
  static const Word kWords[] = {{"true", Value::boolean(true)},   {"True", Value::boolean(true)},
                                {"false", Value::boolean(false)}, {"False", Value::boolean(false)},
                                {"none", Value::none()},          {"None", Value::none()}};
  ExprPtr node = make(ExprKind::kName);
  node->text = FERRY_TRY(in_.expect_name());
  const auto* word = std::ranges::find(kWords, node->text, &Word::name);
  if (word != std::end(kWords)) {
    node->kind = ExprKind::kConstant;
    node->constant = word->value;
  }
  return node;
}

Result<ExprPtr> ExprParser::number() {
  ExprPtr node = make(ExprKind::kConstant);
  const std::string& text = in_.peek().text;
  if (in_.peek().kind == TokenKind::kReal) {
    double d = 0;
    std::from_chars(text.data(), text.data() + text.size(), d);
    node->constant = Value::real(d);
  } else {
    int64_t n = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), n).ec != std::errc()) {
      return in_.unsupported("an integer beyond 64 bit");
    }
    node->constant = Value::integer(n);
  }
  in_.next();
  return node;
}

Result<ExprPtr> ExprParser::strings() {
  ExprPtr node = make(ExprKind::kConstant);
  std::string text;
  while (in_.peek().kind == TokenKind::kString) text += in_.next().text;
  node->constant = Value::text(std::move(text));
  return node;
}

Result<ExprPtr> ExprParser::list(std::string_view close, bool tuple) {
  ExprPtr node = make(ExprKind::kList, tuple ? "tuple" : "");
  while (!in_.symbol(close)) {
    node->children.push_back(FERRY_TRY(choice()));
    if (!in_.is(TokenKind::kOperator, close)) FERRY_RETURN_IF_ERROR(in_.expect_symbol(","));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::dict() {
  ExprPtr node = make(ExprKind::kDict);
  while (!in_.symbol("}")) {
    node->children.push_back(FERRY_TRY(choice()));
    FERRY_RETURN_IF_ERROR(in_.expect_symbol(":"));
    node->children.push_back(FERRY_TRY(choice()));
    if (!in_.is(TokenKind::kOperator, "}")) FERRY_RETURN_IF_ERROR(in_.expect_symbol(","));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::postfix(ExprPtr base) {
  while (true) {
    if (in_.is(TokenKind::kOperator, ".")) {
      ExprPtr node = make(ExprKind::kAttribute);
      in_.next();
      if (in_.peek().kind != TokenKind::kName) return in_.unexpected();
      node->text = in_.next().text;
      node->children.push_back(std::move(base));
      base = FERRY_TRY(finish(std::move(node)));
    } else if (in_.is(TokenKind::kOperator, "[")) {
      base = FERRY_TRY(item(std::move(base)));
    } else if (in_.is(TokenKind::kOperator, "(")) {
      base = FERRY_TRY(call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExprPtr> ExprParser::call(ExprPtr base) {
  ExprPtr node = make(ExprKind::kCall);
  node->children.push_back(std::move(base));
  FERRY_RETURN_IF_ERROR(arguments(*node));
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::item(ExprPtr base) {
  ExprPtr node = make(ExprKind::kItem);
  in_.next();
  node->children.push_back(std::move(base));
  std::vector<ExprPtr> parts(1);
  while (!in_.is(TokenKind::kOperator, "]")) {
    if (in_.symbol(":")) {
      parts.emplace_back();
    } else {
      if (parts.back()) return in_.unexpected();
      parts.back() = FERRY_TRY(choice());
    }
  }
  in_.next();
  if (parts.size() > 3 || (parts.size() == 1 && !parts[0])) return in_.bad("malformed index");
  if (parts.size() > 1) {
    node->kind = ExprKind::kSlice;
    parts.resize(3);
  }
  for (ExprPtr& part : parts) node->children.push_back(std::move(part));
  return finish(std::move(node));
}

Status ExprParser::arguments(Expr& call) {
  FERRY_RETURN_IF_ERROR(in_.expect_symbol("("));
  while (!in_.symbol(")")) {
    if (in_.is(TokenKind::kOperator, "*") || in_.is(TokenKind::kOperator, "**")) {
      return in_.unsupported("* before arguments");
    }
    if (in_.peek().kind == TokenKind::kName && in_.is(TokenKind::kOperator, "=", 1)) {
      std::string name = in_.next().text;
      in_.next();
      call.named.emplace_back(std::move(name), FERRY_TRY(choice()));
    } else {
      if (!call.named.empty()) return in_.bad("an argument without a name after named ones");
      call.children.push_back(FERRY_TRY(choice()));
    }
    if (!in_.is(TokenKind::kOperator, ")")) FERRY_RETURN_IF_ERROR(in_.expect_symbol(","));
  }
  return {};
}

Result<ExprPtr> ExprParser::filters(ExprPtr base) {
  while (true) {
    if (in_.symbol("|")) {
      base = FERRY_TRY(filter(std::move(base)));
    } else if (in_.word("is")) {
      base = FERRY_TRY(test(std::move(base)));
    } else if (in_.is(TokenKind::kOperator, "(")) {
      base = FERRY_TRY(call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExprPtr> ExprParser::filter(ExprPtr base) {
  ExprPtr node = make(ExprKind::kFilter, in_.peek().text);
  if (in_.peek().kind != TokenKind::kName) return in_.unexpected();
  if (!is_filter(node->text)) return in_.unsupported("the filter " + quoted(node->text));
  in_.next();
  node->children.push_back(std::move(base));
  if (in_.is(TokenKind::kOperator, "(")) FERRY_RETURN_IF_ERROR(arguments(*node));
  return finish(std::move(node));
}

// A test takes arguments in brackets or, as in `is divisibleby 3`, one value without brackets.
Result<ExprPtr> ExprParser::test(ExprPtr base) {
  const bool negated = in_.word("not");
  ExprPtr node = make(ExprKind::kTest, in_.peek().text);
  if (in_.peek().kind != TokenKind::kName) return in_.unexpected();
  if (!is_test(node->text)) return in_.unsupported("the test " + quoted(node->text));
  in_.next();
  node->children.push_back(std::move(base));
  const Token& after = in_.peek();
  if (in_.is(TokenKind::kOperator, "(")) {
    FERRY_RETURN_IF_ERROR(arguments(*node));
    if (!node->named.empty()) return in_.unsupported("a named argument of a test");
  } else if ((after.kind == TokenKind::kName && !is_reserved(after.text)) ||
             after.kind == TokenKind::kString || after.kind == TokenKind::kInteger ||
             after.kind == TokenKind::kReal || in_.is(TokenKind::kOperator, "[") ||
             in_.is(TokenKind::kOperator, "{")) {
    ExprPtr value = FERRY_TRY(primary());
    node->children.push_back(FERRY_TRY(postfix(std::move(value))));
  }
  node = FERRY_TRY(finish(std::move(node)));
  if (!negated) return node;
  ExprPtr inverse = make(ExprKind::kUnary, "not");
  inverse->children.push_back(std::move(node));
  return finish(std::move(inverse));
}

}  // namespace ferry::text::chat
