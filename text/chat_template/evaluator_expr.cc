// The evaluation of expressions.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/text.h"
#include "text/chat_template/evaluator.h"
#include "text/chat_template/operations.h"

namespace ferry::text::chat {
namespace {

Result<Value> make_range(const Arguments& arguments, Budget& budget) {
  FERRY_RETURN_IF_ERROR(arguments.check(3, {}));
  const std::vector<Value>& given = arguments.positional;
  const bool integers = std::ranges::all_of(given, [](const Value& v) { return v.is_integer(); });
  if (given.empty() || !integers) return bad_input("range() needs integers");
  const int64_t begin = given.size() > 1 ? given[0].integer() : 0;
  const int64_t end = given[given.size() > 1 ? 1 : 0].integer();
  const int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) return bad_input("range() with step 0");
  std::vector<Value> out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out) == kMaxRange) {
      return bad_input(fmt::format("range() of more than {} numbers", kMaxRange));
    }
    out.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  FERRY_RETURN_IF_ERROR(budget.spend(out.size() * kStepCost));
  return Value::list(std::move(out));
}

Result<Value> make_namespace(const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    return fail(ErrorCode::kUnsupported, "namespace() of a mapping is not supported");
  }
  auto made = std::make_shared<Namespace>();
  for (const auto& [name, value] : arguments.named) {
    if (value.is<std::shared_ptr<Namespace>>()) {
      return fail(ErrorCode::kUnsupported, "a namespace within a namespace is not supported");
    }
    made->items[name] = value;
  }
  return Value(Value::Data(std::move(made)));
}

Result<std::string> one_text(const std::string& function, const Arguments& arguments) {
  FERRY_RETURN_IF_ERROR(arguments.check(1, {}));
  if (arguments.positional.size() != 1) return bad_input(function + "() needs one argument");
  return to_text(arguments.positional[0]);
}

constexpr std::string_view kFunctions[] = {"range", "namespace", "dict", "raise_exception",
                                           "strftime_now"};
constexpr std::string_view kForeign[] = {"lipsum", "cycler", "joiner", "self", "context"};

}  // namespace

Value Evaluator::lookup(const std::string& name) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    const auto found = frames_[i].names.find(name);
    if (found != frames_[i].names.end()) return found->second;
    if (frames_[i].barrier) i = std::min<size_t>(i, 1);
  }
  if (std::ranges::count(kFunctions, name) > 0 || std::ranges::count(kForeign, name) > 0) {
    return Value(Value::Data(Function{name}));
  }
  return Value::undefined(name);
}

Result<Value> Evaluator::dispatch(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return lookup(expr.text);
    case ExprKind::kList:
      return eval_list(expr);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kAttribute:
      return attribute_of(FERRY_TRY(eval(*expr.children[0])), expr.text, budget_);
    case ExprKind::kItem: {
      const Value value = FERRY_TRY(eval(*expr.children[0]));
      return item_of(value, FERRY_TRY(eval(*expr.children[1])), budget_);
    }
    case ExprKind::kSlice:
      return eval_slice(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr);
    case ExprKind::kTest:
      return eval_test(expr);
    case ExprKind::kUnary:
      return eval_unary(expr);
    case ExprKind::kBinary:
      return eval_binary(expr);
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kChoice:
      return eval_choice(expr);
  }
  return Value();
}

Result<Value> Evaluator::eval_list(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& child : expr.children) items.push_back(FERRY_TRY(eval(*child)));
  return Value::list(std::move(items), expr.text == "tuple");
}

Result<Value> Evaluator::eval_dict(const Expr& expr) {
  std::vector<std::pair<std::string, Value>> items;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = FERRY_TRY(eval(*expr.children[i]));
    Value value = FERRY_TRY(eval(*expr.children[i + 1]));
    if (!key.is_text()) {
      return fail(ErrorCode::kUnsupported, "a key that is no string is not supported");
    }
    FERRY_RETURN_IF_ERROR(budget_.spend(items.size()));
    const auto known = std::ranges::find(items, key.str(), &std::pair<std::string, Value>::first);
    if (known != items.end()) {
      known->second = std::move(value);
    } else {
      items.emplace_back(key.str(), std::move(value));
    }
  }
  return Value::dict(std::move(items));
}

Result<Value> Evaluator::eval_slice(const Expr& expr) {
  const Value value = FERRY_TRY(eval(*expr.children[0]));
  std::optional<int64_t> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.children[i + 1]) continue;
    const Value part = FERRY_TRY(eval(*expr.children[i + 1]));
    if (part.is<None>()) continue;
    if (!part.is_integer()) return bad_input("a slice needs integers");
    parts[i] = part.integer();
  }
  return slice(value, {parts[0], parts[1], parts[2]}, budget_);
}

Result<Arguments> Evaluator::eval_arguments(const Expr& expr) {
  Arguments out;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    out.positional.push_back(FERRY_TRY(eval(*expr.children[i])));
  }
  for (const auto& [name, child] : expr.named) {
    FERRY_RETURN_IF_ERROR(budget_.spend(out.named.size()));
    if (out.find(SIZE_MAX, name) != nullptr) {
      return bad_input(fmt::format("the argument {} is there twice", quoted(name)));
    }
    out.named.emplace_back(name, FERRY_TRY(eval(*child)));
  }
  return out;
}

// Methods are called by name only; a method is not a value.
Result<Value> Evaluator::eval_call(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  Value function;
  if (callee.kind == ExprKind::kAttribute) {
    const Value base = FERRY_TRY(eval(*callee.children[0]));
    if (!base.is<std::shared_ptr<Namespace>>()) {
      return call_method(base, callee.text, FERRY_TRY(eval_arguments(expr)), budget_);
    }
    function = FERRY_TRY(attribute_of(base, callee.text, budget_));
  } else {
    function = FERRY_TRY(eval(callee));
  }
  if (function.is<Undefined>()) {
    const std::string& name = std::get<Undefined>(function.data()).name;
    return bad_input(fmt::format("the function {} is undefined", quoted(name)));
  }
  if (!function.is<Function>()) {
    return bad_input(fmt::format("a value of type {} is called", function.type()));
  }
  return call(std::get<Function>(function.data()), FERRY_TRY(eval_arguments(expr)));
}

Result<Value> Evaluator::call(const Function& function, const Arguments& arguments) {
  if (function.macro != nullptr) return call_macro(*function.macro, arguments);
  if (function.name == "range") return make_range(arguments, budget_);
  if (function.name == "namespace") return make_namespace(arguments);
  if (function.name == "dict" && arguments.positional.empty()) {
    return Value::dict(arguments.named);
  }
  if (function.name == "raise_exception") {
    const std::string text = FERRY_TRY(one_text(function.name, arguments));
    return bad_input("the template refuses this chat: " + quoted(text));
  }
  if (function.name == "strftime_now" && time_) {
    const std::string format = FERRY_TRY(one_text(function.name, arguments));
    return Value::text(FERRY_TRY(time_(format)));
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("the function {} is not supported", quoted(function.name)));
}

Result<Value> Evaluator::call_macro(const Stmt& macro, const Arguments& arguments) {
  const size_t places = macro.names.size();
  if (arguments.positional.size() > places) {
    return bad_input(fmt::format("too many arguments for {}", quoted(macro.text)));
  }
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::ranges::find(macro.names, name) - macro.names.begin();
    if (place < std::ssize(arguments.positional) || place == std::ssize(macro.names)) {
      return bad_input(fmt::format("{} takes no argument {}", quoted(macro.text), quoted(name)));
    }
  }
  frames_.push_back({{}, /*barrier=*/true});
  const size_t frame = frames_.size() - 1;
  for (size_t i = 0; i < places; ++i) {
    const Value* given = arguments.find(i, macro.names[i]);
    Value value = Value::undefined(macro.names[i]);
    if (given != nullptr) {
      value = *given;
    } else if (macro.exprs[i]) {
      value = FERRY_TRY(eval(*macro.exprs[i]));
    }
    frames_[frame].names[macro.names[i]] = std::move(value);
  }
  std::string text = FERRY_TRY(capture(macro.bodies[0], /*own_names=*/false));
  frames_.pop_back();
  return Value::text(std::move(text));
}

Result<Value> Evaluator::eval_filter(const Expr& expr) {
  const Value value = FERRY_TRY(eval(*expr.children[0]));
  return call_filter(expr.text, value, FERRY_TRY(eval_arguments(expr)), budget_);
}

Result<Value> Evaluator::eval_test(const Expr& expr) {
  const Value value = FERRY_TRY(eval(*expr.children[0]));
  const Arguments arguments = FERRY_TRY(eval_arguments(expr));
  return Value::boolean(FERRY_TRY(call_test(expr.text, value, arguments.positional, budget_)));
}

Result<Value> Evaluator::eval_unary(const Expr& expr) {
  const Value value = FERRY_TRY(eval(*expr.children[0]));
  if (expr.text == "not") return Value::boolean(!value.truth());
  if (expr.text == "-") return negated(value);
  return negated(FERRY_TRY(negated(value)));
}

Result<Value> Evaluator::eval_binary(const Expr& expr) {
  Value left = FERRY_TRY(eval(*expr.children[0]));
  if (expr.text == "and" || expr.text == "or") {
    if (left.truth() == (expr.text == "or")) return left;
    return eval(*expr.children[1]);
  }
  return combine(expr.text, left, FERRY_TRY(eval(*expr.children[1])), budget_);
}

// A chain `a < b < c` is evaluated up to the first comparison that is false.
Result<Value> Evaluator::eval_compare(const Expr& expr) {
  Value left = FERRY_TRY(eval(*expr.children[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = FERRY_TRY(eval(*expr.children[i + 1]));
    if (!FERRY_TRY(relation(expr.ops[i], left, right, budget_))) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Evaluator::eval_choice(const Expr& expr) {
  const bool yes = FERRY_TRY(eval(*expr.children[1])).truth();
  if (yes) return eval(*expr.children[0]);
  if (expr.children[2]) return eval(*expr.children[2]);
  return Value::undefined("");
}

}  // namespace ferry::text::chat
