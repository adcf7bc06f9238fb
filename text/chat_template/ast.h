// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/value.h"

namespace ferry::text::chat {

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

}  // namespace ferry::text::chat
