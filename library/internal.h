// Declarations that the sources of this folder share: the implementations of the handles, and
// run(), through which every call of the library goes.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/sound.h>
#include <ferry/text.h>

#include <atomic>
#include <mutex>
#include <string>

#include "core/interrupt.h"
#include "core/progress.h"
#include "core/thread_pool.h"
#include "media/sound.h"
#include "packer/bundle_reader.h"
#include "text/chat_template/chat_template.h"

namespace ferry {
inline namespace v0 {

struct Engine::Impl {
  explicit Impl(size_t threads) : pool(threads) {}
  ThreadPool pool;
  std::mutex busy;
  std::atomic<int> interrupt{0};  // see Engine::interrupt()
};

struct Bundle::Impl {
  packer::Bundle bundle;
  bool has_blocks = false;  // whether matrices are in the blocks of a GGUF file
  bool exact = false;       // OpenOptions::exact
};

namespace library {

// Thrown if a callback has returned false. The exception passes through the thread pool, and run()
// turns it into an error.
struct Stopped {};
Failure stopped();

// Returns an empty function if `progress` is empty. `what` must outlive the result.
ShowProgress show(const OnProgress& progress, const char* what);

// Sets Error::field and Error::place if the message contains them. `path` is the path that the call
// was given.
void locate(Error& error, const std::string& path);

// Waits until the engine is free and calls work(pool), which returns a Result.
template <class Work>
auto run(const Engine& engine, const std::string& path, Work&& work)
    -> decltype(work(engine.impl().pool)) {
  const std::lock_guard lock(engine.impl().busy);
  const InterruptScope scope(&engine.impl().interrupt);
  try {
    auto result = work(engine.impl().pool);
    if (!result) locate(result.error(), path);
    return result;
  } catch (const Stopped&) {
    return stopped();
  }
}

// Returns kUsage about a member of an options struct. `message` continues its name, such as "must
// be positive".
Failure wrong(const std::string& field, const std::string& message);

// Reads a file of sound, or checks and copies samples. `field` is the member of the options that
// has the sound. kUsage unless it has either; other errors are those of media::read_sound().
Result<media::Sound> read_sound(const Sound& sound, const char* field);

// Returns the messages as JSON for chat templates that accept text only.
Result<std::string> chat_of(std::span<const Message> messages, bool add_generation_prompt);

}  // namespace library
}  // namespace v0
}  // namespace ferry
