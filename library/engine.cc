#include <ferry/engine.h>

#include <algorithm>

#include "core/interrupt.h"
#include "core/text.h"
#include "core/version.h"
#include "library/internal.h"

namespace ferry {
inline namespace v0 {

Engine::Engine(size_t threads)
    : impl_(std::make_shared<Impl>(threads == 0 ? ThreadPool::hardware_threads() : threads)) {}
Engine::~Engine() = default;
Engine::Engine(const Engine&) = default;
Engine& Engine::operator=(const Engine&) = default;

size_t Engine::threads() const { return impl_->pool.size(); }

void Engine::interrupt(int signal) const noexcept { impl_->interrupt = signal; }
void Engine::clear_interrupt_request() const noexcept { impl_->interrupt = 0; }

void interrupt_all(int signal) noexcept { request_interrupt(signal); }
void clear_interrupt_request() noexcept { clear_interrupt(); }

std::string_view library_version() { return version(); }

namespace library {
namespace {

// Returns "DIR/file" from a message such as "DIR/file: no tensors", where `path` is DIR.
std::string place_of(const Error& error, const std::string& path) {
  const std::string shown = printable(path);
  if (shown.empty() || !error.message.starts_with(shown)) return {};
  const size_t end = error.message.find(": ", shown.size());
  return end == std::string::npos ? "" : error.message.substr(0, end);
}

}  // namespace

Failure stopped() { return fail(ErrorCode::kInterrupted, "stopped by the caller"); }

ShowProgress show(const OnProgress& progress, const char* what) {
  if (!progress) return {};
  return [progress, what](uint64_t done, uint64_t total) {
    if (!progress(what, done, total)) throw Stopped();
  };
}

void locate(Error& error, const std::string& path) {
  if (error.place.empty()) error.place = place_of(error, path);
}

Failure wrong(const std::string& field, const std::string& message) {
  return fail_field(ErrorCode::kUsage, field, " " + message);
}

}  // namespace library
}  // namespace v0
}  // namespace ferry
