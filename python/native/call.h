// call() runs work of the library for Python: without the lock of the interpreter, so that other
// threads of Python go on, and so that Ctrl-C stops the work. Callback passes progress and tokens
// to functions of Python.
#pragma once

#include <ferry/ferry.h>
#include <nanobind/nanobind.h>

#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ferry::python {

// Raises ferry.Error, or its subclass for the code.
[[noreturn]] void raise(const Error& error);

// Passes calls from threads of the library to a function of Python, which may be None. The first
// exception of the function stops the work. rethrow() raises it in the thread that waits.
class Callback {
 public:
  explicit Callback(nanobind::object function) : function_(std::move(function)) {}

  OnProgress progress();  // calls function(what, done, total)
  OnToken token();        // calls function(token, text), which returns whether to go on
  void rethrow();         // requires the lock of the interpreter

 private:
  bool guarded(const std::function<bool()>& function);

  nanobind::object function_;
  std::optional<nanobind::python_error> raised_;
};

// Runs `work` in a thread of its own, without the lock of the interpreter, and returns when it has
// ended. Signals that arrive meanwhile are handled by Python's handlers. If one raises, as that of
// Ctrl-C does, the engine is interrupted, and the exception is raised here.
void run_apart(const Engine& engine, const std::function<void()>& work);

// Returns the value of work(), which returns a Result. Raises its error, or the exception of the
// callback that stopped it.
template <class Work>
auto call(const Engine& engine, Callback& callback, const Work& work) {
  std::optional<decltype(work())> result;
  run_apart(engine, [&] { result.emplace(work()); });
  callback.rethrow();
  if (!*result) raise(result->error());
  if constexpr (!std::is_same_v<decltype(work()), Status>) return **std::move(result);
}
template <class Work>
auto call(const Engine& engine, const Work& work) {
  Callback none{nanobind::none()};
  return call(engine, none, work);
}

}  // namespace ferry::python
