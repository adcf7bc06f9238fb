#include "native/call.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace nb = nanobind;

namespace ferry::python {
namespace {

// How long a signal waits until Python handles it.
constexpr std::chrono::milliseconds kSignalInterval(50);

// Work in a thread, whose exception wait() throws.
class Apart {
 public:
  explicit Apart(const std::function<void()>& work) : thread_([this, &work] { run(work); }) {}
  ~Apart() { thread_.join(); }

  // Returns whether the work has ended.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return done_; });
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run(const std::function<void()>& work) {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    done_ = true;
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace

void raise(const Error& error) {
  const nb::object make = nb::module_::import_("ferry._errors").attr("make_error");
  const nb::object raised =
      make(static_cast<int>(error.code), error.message, error.details, error.field, error.place);
  PyErr_SetObject(raised.type().ptr(), raised.ptr());
  throw nb::python_error();
}

bool Callback::guarded(const std::function<bool()>& function) {
  const nb::gil_scoped_acquire lock;
  if (raised_) return false;
  try {
    return function();
  } catch (nb::python_error& error) {
    raised_.emplace(error);
    return false;
  }
}

OnProgress Callback::progress() {
  if (function_.is_none()) return {};
  return [this](std::string_view what, uint64_t done, uint64_t total) {
    return guarded([&] {
      function_(what, done, total);
      return true;
    });
  };
}

OnToken Callback::token() {
  if (function_.is_none()) return {};
  return [this](int64_t token, std::string_view text) {
    return guarded([&] { return PyObject_IsTrue(function_(token, text).ptr()) == 1; });
  };
}

void Callback::rethrow() {
  if (!raised_) return;
  nb::python_error error(*raised_);
  raised_.reset();
  throw error;
}

void run_apart(const Engine& engine, const std::function<void()>& work) {
  std::optional<nb::python_error> raised;
  {
    const nb::gil_scoped_release unlocked;
    Apart apart(work);
    while (!apart.wait(kSignalInterval)) {
      const nb::gil_scoped_acquire lock;
      if (raised || PyErr_CheckSignals() == 0) continue;
      raised.emplace();
      engine.interrupt(SIGINT);
    }
    apart.rethrow();
  }
  if (!raised) return;
  engine.clear_interrupt_request();
  throw nb::python_error(*raised);
}

}  // namespace ferry::python
