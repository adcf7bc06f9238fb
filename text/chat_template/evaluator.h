// Evaluator renders the tree of a chat template with given variables.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/operations.h"
#include "text/chat_template/parser.h"

namespace ferry::text::chat {

inline constexpr size_t kMaxOutputBytes = size_t{16} << 20;
// Nodes under evaluation, including macro calls, may be nested this deep.
inline constexpr int kMaxEvaluationDepth = 500;
inline constexpr int64_t kMaxRange = 100'000;

using Names = std::map<std::string, Value, std::less<>>;
// Returns the current time in a format of strftime(). An empty function means that templates get no
// time.
using TimeText = std::function<Result<std::string>(const std::string& format)>;
// Returns a function that formats the local time of the system with strftime().
TimeText local_time();
// Returns a function that formats `seconds` since 1970 in UTC, whatever the time of the system is.
TimeText fixed_time(int64_t seconds);

class Evaluator {
 public:
  Evaluator(Names variables, TimeText time);
  // Renders `body`, and may be called once. `body` must outlive the evaluator. Error messages begin
  // with "line N: ".
  Result<std::string> run(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // A frame holds the names of a loop's pass, a macro or a block. Code behind a barrier sees the
  // frames of that code and the outermost frame only.
  struct Frame {
    Names names;
    bool barrier;
  };
  class Nesting;

  Result<Flow> exec(const Body& body);
  Result<Flow> exec(const Stmt& stmt);
  Result<Flow> dispatch(const Stmt& stmt);
  Result<Flow> exec_if(const Stmt& stmt);
  Result<Flow> exec_for(const Stmt& stmt);
  Result<std::vector<Value>> loop_items(const Stmt& stmt);
  Result<Flow> exec_scope(const Stmt& stmt);
  Status exec_set(const Stmt& stmt);
  Status exec_set_block(const Stmt& stmt);
  Status print(const Expr& expr);
  Status emit(const std::string& text);
  Status bind(Frame& frame, const std::vector<std::string>& names, const Value& value);
  // Returns the text that `body` writes.
  Result<std::string> capture(const Body& body, bool own_names);

  Result<Value> eval(const Expr& expr);
  Result<Value> dispatch(const Expr& expr);
  Result<Value> eval_list(const Expr& expr);
  Result<Value> eval_dict(const Expr& expr);
  Result<Value> eval_slice(const Expr& expr);
  Result<Value> eval_call(const Expr& expr);
  Result<Value> eval_filter(const Expr& expr);
  Result<Value> eval_test(const Expr& expr);
  Result<Value> eval_unary(const Expr& expr);
  Result<Value> eval_binary(const Expr& expr);
  Result<Value> eval_compare(const Expr& expr);
  Result<Value> eval_choice(const Expr& expr);
  Result<Arguments> eval_arguments(const Expr& expr);
  Result<Value> call(const Function& function, const Arguments& arguments);
  Result<Value> call_macro(const Stmt& macro, const Arguments& arguments);
  Value lookup(const std::string& name) const;
  Error located(Error error, int line);

  std::vector<Frame> frames_;
  TimeText time_;
  Budget budget_;
  std::string* out_ = nullptr;
  int depth_ = 0;
  bool located_ = false;  // whether the error that is being returned names its line
};

}  // namespace ferry::text::chat
