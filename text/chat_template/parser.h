// The parser makes the tree of a chat template from its tokens. It refuses unsupported statements,
// filters and tests by name and line. Unsupported methods and functions are refused only when they
// are called.
#pragma once

#include <algorithm>
#include <vector>

#include "text/chat_template/ast.h"
#include "text/chat_template/lexer.h"

namespace ferry::text::chat {

// Error messages begin with "line N: ". Errors are kUnsupported and kBadInput.
Result<Body> parse(const std::vector<Token>& tokens);

// TokenReader gives both parsers one token after the other.
class TokenReader {
 public:
  explicit TokenReader(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return peek().line; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind, std::string_view text, size_t ahead = 0) const {
    return peek(ahead).kind == kind && peek(ahead).text == text;
  }
  bool symbol(std::string_view text) { return take(TokenKind::kOperator, text); }
  bool word(std::string_view text) { return take(TokenKind::kName, text); }
  Status expect_symbol(std::string_view text);
  Result<std::string> expect_name();
  Status expect(TokenKind kind);

  Failure bad(std::string_view what) const;
  Failure unsupported(std::string_view what) const;
  Failure unexpected() const;

 private:
  bool take(TokenKind kind, std::string_view text);
  const std::vector<Token>& tokens_;
  size_t at_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(TokenReader& in) : in_(in) {}
  // With `tuple`, expressions separated by commas are a tuple.
  Result<ExprPtr> expression(bool tuple);
  // Parses the list of a loop, without a choice (`A if B`), because the condition of a loop looks
  // the same.
  Result<ExprPtr> loop_list();
  // Parses the filters after the `|` that follows `base`.
  Result<ExprPtr> filters(ExprPtr base);

 private:
  using Rule = Result<ExprPtr> (ExprParser::*)();
  struct Level;
  Result<ExprPtr> choice();
  Result<ExprPtr> any_of();
  Result<ExprPtr> all_of();
  Result<ExprPtr> negation();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> joined();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> signed_value() { return unary(true); }
  Result<ExprPtr> unary(bool with_filters);
  Result<ExprPtr> primary();
  Result<ExprPtr> name();
  Result<ExprPtr> number();
  Result<ExprPtr> strings();
  Result<ExprPtr> list(std::string_view close, bool tuple);
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr base);
  Result<ExprPtr> call(ExprPtr base);
  Result<ExprPtr> item(ExprPtr base);
  Result<ExprPtr> filter(ExprPtr base);
  Result<ExprPtr> test(ExprPtr base);
  Result<ExprPtr> binary(std::initializer_list<std::string_view> ops, TokenKind kind, Rule operand);
  Status arguments(Expr& call);
  // Sets the depth of a finished node. Fails if the node is nested too deep.
  Result<ExprPtr> finish(ExprPtr node);
  ExprPtr make(ExprKind kind, std::string text = {}) const;

  TokenReader& in_;
  int depth_ = 0;
};

}  // namespace ferry::text::chat
