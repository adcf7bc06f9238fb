// The evaluation of statements. Scopes are those of Jinja: a pass of a loop, a macro and a
// generation block have scopes; `if` has none.
#include "text/chat_template/evaluator.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <utility>

#include "core/text.h"

namespace ferry::text::chat {

// Raises the depth by one until the end of the C++ scope.
class Evaluator::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(++depth) {}
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

Evaluator::Evaluator(Names variables, TimeText time) : time_(std::move(time)) {
  frames_.push_back({std::move(variables), false});
}

Result<std::string> Evaluator::run(const Body& body) {
  std::string text;
  out_ = &text;
  FERRY_TRY(exec(body));
  return text;
}

Error Evaluator::located(Error error, int line) {
  if (!std::exchange(located_, true))
    error.message = fmt::format("line {}: {}", line, error.message);
  return error;
}

Result<Value> Evaluator::eval(const Expr& expr) {
  const Nesting nesting(depth_);
  Result<Value> value = Value();
  if (depth_ > kMaxEvaluationDepth) {
    value = bad_input("the template is nested too deeply");
  } else if (auto status = budget_.spend(kStepCost); !status) {
    value = status.pass();
  } else {
    value = dispatch(expr);
  }
  if (value) return value;
  return Failure(located(std::move(value).error(), expr.line));
}

Result<Evaluator::Flow> Evaluator::exec(const Stmt& stmt) {
  const Nesting nesting(depth_);
  Result<Flow> flow = Flow::kNext;
  if (depth_ > kMaxEvaluationDepth) {
    flow = bad_input("the template is nested too deeply");
  } else if (auto status = budget_.spend(kStepCost); !status) {
    flow = status.pass();
  } else {
    flow = dispatch(stmt);
  }
  if (flow) return flow;
  return Failure(located(std::move(flow).error(), stmt.line));
}

Result<Evaluator::Flow> Evaluator::exec(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = FERRY_TRY(exec(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::dispatch(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kText:
      FERRY_RETURN_IF_ERROR(emit(stmt.text));
      break;
    case StmtKind::kPrint:
      FERRY_RETURN_IF_ERROR(print(*stmt.exprs[0]));
      break;
    case StmtKind::kIf:
      return exec_if(stmt);
    case StmtKind::kFor:
      return exec_for(stmt);
    case StmtKind::kSet:
      FERRY_RETURN_IF_ERROR(exec_set(stmt));
      break;
    case StmtKind::kSetBlock:
      FERRY_RETURN_IF_ERROR(exec_set_block(stmt));
      break;
    case StmtKind::kMacro:
      frames_.back().names[stmt.text] = Value(Value::Data(Function{stmt.text, &stmt}));
      break;
    case StmtKind::kScope:
      return exec_scope(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Evaluator::emit(const std::string& text) {
  if (out_->size() + text.size() > kMaxOutputBytes) {
    return bad_input("the rendered text grows beyond 16 MiB");
  }
  FERRY_RETURN_IF_ERROR(budget_.spend(text.size()));
  *out_ += text;
  return {};
}

// `| safe` marks text that must not be escaped. Nothing is escaped, so the mark matters only to
// later operations on the text, which are not supported.
Status Evaluator::print(const Expr& expr) {
  const bool safe = expr.kind == ExprKind::kFilter && expr.text == "safe";
  const Value value = FERRY_TRY(eval(safe ? *expr.children[0] : expr));
  FERRY_RETURN_IF_ERROR(budget_.spend(value.weight()));
  return emit(to_text(value));
}

Result<Evaluator::Flow> Evaluator::exec_if(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (FERRY_TRY(eval(*stmt.exprs[i])).truth()) return exec(stmt.bodies[i]);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) return exec(stmt.bodies.back());
  return Flow::kNext;
}

Status Evaluator::bind(Frame& frame, const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    frame.names[names[0]] = value;
    return {};
  }
  const std::vector<Value> parts = FERRY_TRY(elements_of(value, budget_));
  if (parts.size() != names.size()) {
    return bad_input(fmt::format("{} values for {} names", parts.size(), names.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) frame.names[names[i]] = parts[i];
  return {};
}

// Returns the elements that satisfy the loop's condition.
Result<std::vector<Value>> Evaluator::loop_items(const Stmt& stmt) {
  const Value list = FERRY_TRY(eval(*stmt.exprs[0]));
  std::vector<Value> all = FERRY_TRY(elements_of(list, budget_));
  if (!stmt.exprs[1]) return all;
  std::vector<Value> kept;
  for (Value& item : all) {
    frames_.push_back({});
    Status status = bind(frames_.back(), stmt.names, item);
    Result<Value> condition = status ? eval(*stmt.exprs[1]) : Result<Value>(Value());
    frames_.pop_back();
    FERRY_RETURN_IF_ERROR(std::move(status));
    if (FERRY_TRY(std::move(condition)).truth()) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Evaluator::Flow> Evaluator::exec_for(const Stmt& stmt) {
  const auto items = std::make_shared<const std::vector<Value>>(FERRY_TRY(loop_items(stmt)));
  if (items->empty()) return stmt.bodies.size() > 1 ? exec(stmt.bodies[1]) : Flow::kNext;
  for (size_t i = 0; i < items->size(); ++i) {
    FERRY_RETURN_IF_ERROR(budget_.spend(kStepCost));
    Frame frame{};
    FERRY_RETURN_IF_ERROR(bind(frame, stmt.names, (*items)[i]));
    frame.names["loop"] = Value(Value::Data(std::make_shared<const Loop>(Loop{items, i})));
    frames_.push_back(std::move(frame));
    const Flow flow = FERRY_TRY(exec(stmt.bodies[0]));
    frames_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::exec_scope(const Stmt& stmt) {
  frames_.push_back({});
  FERRY_TRY(exec(stmt.bodies[0]));
  frames_.pop_back();
  return Flow::kNext;
}

Status Evaluator::exec_set(const Stmt& stmt) {
  Value value = FERRY_TRY(eval(*stmt.exprs[0]));
  if (stmt.text.empty()) return bind(frames_.back(), stmt.names, value);
  const Value target = lookup(stmt.names[0]);
  const auto* ns = std::get_if<std::shared_ptr<Namespace>>(&target.data());
  if (ns == nullptr) return bad_input(fmt::format("{} is no namespace", quoted(stmt.names[0])));
  if (value.is<std::shared_ptr<Namespace>>()) {
    return fail(ErrorCode::kUnsupported, "a namespace within a namespace is not supported");
  }
  (*ns)->items[stmt.text] = std::move(value);
  return {};
}

Status Evaluator::exec_set_block(const Stmt& stmt) {
  Value value = Value::text(FERRY_TRY(capture(stmt.bodies[0], /*own_names=*/true)));
  if (stmt.exprs[0]->kind != ExprKind::kName) {
    frames_.push_back({});
    frames_.back().names[""] = std::move(value);
    value = FERRY_TRY(eval(*stmt.exprs[0]));
    frames_.pop_back();
  }
  frames_.back().names[stmt.names[0]] = std::move(value);
  return {};
}

Result<std::string> Evaluator::capture(const Body& body, bool own_names) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  if (own_names) frames_.push_back({});
  FERRY_TRY(exec(body));
  if (own_names) frames_.pop_back();
  out_ = outer;
  return text;
}

namespace {

Result<std::string> format_time(const std::string& format, const std::tm& time) {
  std::array<char, 256> text{};
  // strftime() writes nothing if the text is too long for the buffer, and also if it is empty.
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &time);
  if (size == 0 && !format.empty()) return bad_input("strftime_now: this format is too long");
  return std::string(text.data(), size);
}

}  // namespace

TimeText local_time() {
  return [](const std::string& format) -> Result<std::string> {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    if (localtime_r(&now, &local) == nullptr) return fail(ErrorCode::kIo, "the time is not known");
    return format_time(format, local);
  };
}

TimeText fixed_time(int64_t seconds) {
  return [seconds](const std::string& format) -> Result<std::string> {
    const std::time_t given = seconds;
    std::tm utc{};
    if (gmtime_r(&given, &utc) == nullptr) return fail(ErrorCode::kInternal, "no such time");
    return format_time(format, utc);
  };
}

}  // namespace ferry::text::chat
