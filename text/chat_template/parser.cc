// The parser of statements.

#include "text/chat_template/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::text::chat {
namespace {

using Words = std::initializer_list<std::string_view>;

class StmtParser {
 public:
  explicit StmtParser(const std::vector<Token>& tokens) : in_(tokens), expr_(in_) {}

  Result<Body> run() { return body({}); }

 private:
  using Rule = Result<std::unique_ptr<Stmt>> (StmtParser::*)();
  struct Block {
    std::string_view word;
    Rule parse;
  };
  static constexpr size_t kBlockCount = 7;
  static const Block kBlocks[kBlockCount];

  std::unique_ptr<Stmt> make(StmtKind kind) const {
    return std::make_unique<Stmt>(Stmt{.kind = kind, .line = in_.line()});
  }

  // Parses up to a block with one of these words, and does not consume that block. Without words it
  // parses to the end.
  Result<Body> body(Words ends) {
    if (++depth_ > kMaxNodeDepth) return in_.bad("blocks are nested too deeply");
    Body out;
    while (in_.peek().kind != TokenKind::kEnd) {
      if (in_.peek().kind == TokenKind::kBlockBegin &&
          std::ranges::count(ends, in_.peek(1).text) > 0) {
        --depth_;
        return out;
      }
      out.push_back(FERRY_TRY(statement()));
    }
    if (ends.size() > 0) {
      return in_.bad(fmt::format("the template ends before {}", quoted(*(ends.end() - 1))));
    }
    return out;
  }

  Result<std::unique_ptr<Stmt>> statement() {
    if (in_.peek().kind == TokenKind::kText) {
      auto node = make(StmtKind::kText);
      node->text = in_.next().text;
      return node;
    }
    if (in_.peek().kind == TokenKind::kPrintBegin) {
      in_.next();
      auto node = make(StmtKind::kPrint);
      node->exprs.push_back(FERRY_TRY(expr_.expression(true)));
      FERRY_RETURN_IF_ERROR(in_.expect(TokenKind::kPrintEnd));
      return node;
    }
    FERRY_RETURN_IF_ERROR(in_.expect(TokenKind::kBlockBegin));
    const std::string word = in_.peek().text;
    const auto* block = std::find_if(kBlocks, kBlocks + kBlockCount,
                                     [&](const Block& b) { return b.word == word; });
    if (block != kBlocks + kBlockCount) return (this->*block->parse)();
    if (in_.peek().kind != TokenKind::kName || word.starts_with("end") || word.starts_with("el")) {
      return in_.unexpected();
    }
    return in_.unsupported("the statement " + quoted(word));
  }

  Status end_tag() { return in_.expect(TokenKind::kBlockEnd); }
  // Parses the rest of {% WORD %}, after its opening sign.
  Status end_block() {
    in_.next();
    in_.next();
    return end_tag();
  }

  Result<std::unique_ptr<Stmt>> if_block() {
    auto node = make(StmtKind::kIf);
    do {
      in_.next();
      node->exprs.push_back(FERRY_TRY(expr_.expression(false)));
      FERRY_RETURN_IF_ERROR(end_tag());
      node->bodies.push_back(FERRY_TRY(body({"elif", "else", "endif"})));
      in_.next();
    } while (in_.is(TokenKind::kName, "elif"));
    if (in_.word("else")) {
      FERRY_RETURN_IF_ERROR(end_tag());
      node->bodies.push_back(FERRY_TRY(body({"endif"})));
      in_.next();
    }
    in_.next();
    FERRY_RETURN_IF_ERROR(end_tag());
    return node;
  }

  Result<std::unique_ptr<Stmt>> for_block() {
    auto node = make(StmtKind::kFor);
    in_.next();
    node->names = FERRY_TRY(names());
    if (!in_.word("in")) return in_.unexpected();
    node->exprs.push_back(FERRY_TRY(expr_.loop_list()));
    node->exprs.emplace_back();
    if (in_.word("if")) node->exprs.back() = FERRY_TRY(expr_.expression(false));
    if (in_.is(TokenKind::kName, "recursive")) return in_.unsupported("a recursive loop");
    FERRY_RETURN_IF_ERROR(end_tag());
    ++loops_;
    node->bodies.push_back(FERRY_TRY(body({"else", "endfor"})));
    --loops_;
    if (in_.is(TokenKind::kName, "else", 1)) {
      FERRY_RETURN_IF_ERROR(end_block());
      node->bodies.push_back(FERRY_TRY(body({"endfor"})));
    }
    FERRY_RETURN_IF_ERROR(end_block());
    return node;
  }

  // Parses the target of an assignment or a loop: a, b or (a, b).
  Result<std::vector<std::string>> names() {
    const bool bracket = in_.symbol("(");
    std::vector<std::string> out;
    do {
      out.push_back(FERRY_TRY(in_.expect_name()));
    } while (in_.symbol(","));
    if (bracket) FERRY_RETURN_IF_ERROR(in_.expect_symbol(")"));
    return out;
  }

  Result<std::unique_ptr<Stmt>> set_block() {
    auto node = make(StmtKind::kSet);
    in_.next();
    node->names = FERRY_TRY(names());
    if (node->names.size() == 1 && in_.symbol(".")) node->text = FERRY_TRY(in_.expect_name());
    if (in_.symbol("=")) {
      node->exprs.push_back(FERRY_TRY(expr_.expression(true)));
      FERRY_RETURN_IF_ERROR(end_tag());
      return node;
    }
    if (node->names.size() != 1 || !node->text.empty()) return in_.unexpected();
    node->kind = StmtKind::kSetBlock;
    auto value = std::make_unique<Expr>(Expr{.kind = ExprKind::kName, .line = in_.line()});
    node->exprs.push_back(FERRY_TRY(expr_.filters(std::move(value))));
    FERRY_RETURN_IF_ERROR(end_tag());
    node->bodies.push_back(FERRY_TRY(body({"endset"})));
    FERRY_RETURN_IF_ERROR(end_block());
    return node;
  }

  Result<std::unique_ptr<Stmt>> macro_block() {
    auto node = make(StmtKind::kMacro);
    in_.next();
    node->text = FERRY_TRY(in_.expect_name());
    FERRY_RETURN_IF_ERROR(in_.expect_symbol("("));
    while (!in_.symbol(")")) {
      node->names.push_back(FERRY_TRY(in_.expect_name()));
      ExprPtr fallback;
      if (in_.symbol("=")) fallback = FERRY_TRY(expr_.expression(false));
      node->exprs.push_back(std::move(fallback));
      if (!in_.is(TokenKind::kOperator, ")")) FERRY_RETURN_IF_ERROR(in_.expect_symbol(","));
    }
    FERRY_RETURN_IF_ERROR(end_tag());
    const int loops = std::exchange(loops_, 0);
    node->bodies.push_back(FERRY_TRY(body({"endmacro"})));
    loops_ = loops;
    FERRY_RETURN_IF_ERROR(end_block());
    return node;
  }

  // A generation block marks assistant output for training. Only its body is rendered.
  Result<std::unique_ptr<Stmt>> generation_block() {
    auto node = make(StmtKind::kScope);
    in_.next();
    FERRY_RETURN_IF_ERROR(end_tag());
    const int loops = std::exchange(loops_, 0);
    node->bodies.push_back(FERRY_TRY(body({"endgeneration"})));
    loops_ = loops;
    FERRY_RETURN_IF_ERROR(end_block());
    return node;
  }

  Result<std::unique_ptr<Stmt>> jump() {
    if (loops_ == 0) return in_.unexpected();
    auto node = make(in_.is(TokenKind::kName, "break") ? StmtKind::kBreak : StmtKind::kContinue);
    in_.next();
    FERRY_RETURN_IF_ERROR(end_tag());
    return node;
  }

  TokenReader in_;
  ExprParser expr_;
  int depth_ = 0, loops_ = 0;
};

const StmtParser::Block StmtParser::kBlocks[kBlockCount] = {
    {"if", &StmtParser::if_block},
    {"for", &StmtParser::for_block},
    {"set", &StmtParser::set_block},
    {"macro", &StmtParser::macro_block},
    {"generation", &StmtParser::generation_block},
    {"break", &StmtParser::jump},
    {"continue", &StmtParser::jump},
};

}  // namespace

Result<Body> parse(const std::vector<Token>& tokens) { return StmtParser(tokens).run(); }

}  // namespace ferry::text::chat
