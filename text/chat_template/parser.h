// The parser makes the tree of a chat template from its tokens. It refuses unsupported statements,
// filters and tests by name and line. Unsupported methods and functions are refused only when they
// are called.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/lexer.h"
#include "text/chat_template/value.h"

namespace ferry::text::chat {

// -- the tree

// Expressions and blocks may be nested this deep.
inline constexpr int kMaxNodeDepth = 120;

enum class ExprKind {
  kConstant,   // constant
  kName,       // text
  kList,       // children; text "tuple" for a tuple
  kDict,       // children: key, value, key, value
  kAttribute,  // children[0] . text
  kItem,       // children[0] [ children[1] ]
  kSlice,    // children[0] [ children[1] : children[2] : children[3] ], nullptr for an absent bound
  kCall,     // children[0] ( children[1..], named )
  kFilter,   // children[0] | text ( children[1..], named )
  kTest,     // children[0] is text ( children[1..] )
  kUnary,    // text: - + not
  kBinary,   // text: + - * / // % ** ~ and or
  kCompare,  // children[0] ops[0] children[1] ops[1] ...: == != < <= > >= in "not in"
  kChoice    // children[0] if children[1] else children[2], nullptr where left out
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string text = {};
  Value constant = {};
  std::vector<std::unique_ptr<Expr>> children = {};
  std::vector<std::pair<std::string, std::unique_ptr<Expr>>> named = {};
  std::vector<std::string> ops = {};
};
using ExprPtr = std::unique_ptr<Expr>;

enum class StmtKind {
  kText,      // text
  kPrint,     // exprs[0]
  kIf,        // exprs[i] guards bodies[i]; one body more for else
  kFor,       // names, exprs: the list and the condition or nullptr; bodies: loop, else
  kSet,       // names (or names[0] . attribute text) = exprs[0]
  kSetBlock,  // names[0] = bodies[0]; exprs[0] filters the value of the name "", or nullptr
  kMacro,     // text (names = exprs or nullptr): bodies[0]
  kScope,     // bodies[0], with names of its own
  kBreak,
  kContinue
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Stmt {
  StmtKind kind;
  int line;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<ExprPtr> exprs = {};
  std::vector<Body> bodies = {};
};

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
