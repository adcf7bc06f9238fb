// What the sources of this folder share: the implementations of the handles, and the way in which
// every call of the library runs.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/text.h>

#include <mutex>
#include <string>

#include "core/progress.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "text/chat_template/chat_template.h"

namespace ferry {
inline namespace v0 {

struct Engine::Impl {
  explicit Impl(size_t threads) : pool(threads) {}
  ThreadPool pool;
  std::mutex busy;
};

struct Bundle::Impl {
  packer::Bundle bundle;
};

namespace library {

// A callback that returned false throws it. It passes through the thread pool, and run() makes an
// error of it.
struct Stopped {};
Failure stopped();

// Empty where `progress` is. `what` must stay.
ShowProgress show(const OnProgress& progress, const char* what);

// Fills in Error::field and Error::place as far as the message tells them. `path` is what the call
// is about.
void locate(Error& error, const std::string& path);

// Calls work(pool), which returns a Result, when the engine is free.
template <class Work>
auto run(const Engine& engine, const std::string& path, Work&& work)
    -> decltype(work(engine.impl().pool)) {
  const std::lock_guard lock(engine.impl().busy);
  try {
    auto result = work(engine.impl().pool);
    if (!result) locate(result.error(), path);
    return result;
  } catch (const Stopped&) {
    return stopped();
  }
}

// kUsage about a member of an options struct; `message` continues its name ("must be positive").
Failure wrong(const std::string& field, const std::string& message);

// Messages as chat templates of text alone take them.
Result<std::string> chat_of(std::span<const Message> messages, bool add_generation_prompt);

}  // namespace library
}  // namespace v0
}  // namespace ferry
