// TextBatches encodes many texts with the text encoder of a bundle. Short texts share calls, and
// calls run side by side, each in one thread. The values of a text do not depend on the number of
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/memory.h"
#include "runner/text_encoder.h"

namespace ferry::runner {

class TextBatches {
 public:
  // `pool` must outlive the object. All encoders share the memory of MethodOptions::memory. Errors
  // are those of TextEncoder::load().
  static Result<TextBatches> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const MethodOptions& options);

  const TextEncoder::Sizes& sizes() const { return encoder_->sizes(); }

  // Calls `sink` once for each text, with its index, from any thread and in any order. Errors are
  // those of TextEncoder::encode().
  using Sink = std::function<void(size_t text, const EncodedText& encoded)>;
  Status encode(std::span<const TextTokens> texts, const Sink& sink);

 private:
  // An encoder with a thread of its own.
  struct Worker {
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<TextEncoder> encoder;
  };
  // Consecutive texts of one call.
  struct Group {
    size_t begin, end;
  };

  TextBatches(const packer::Bundle& bundle, ThreadPool& pool, const MethodOptions& options)
      : bundle_(bundle),
        pool_(&pool),
        options_(options),
        budget_(options.memory),
        most_workers_(pool.size()) {}

  std::vector<Group> groups_of(std::span<const TextTokens> texts) const;
  void add_workers(size_t wanted);
  static Status encode_group(TextEncoder& encoder, std::span<const TextTokens> texts,
                             const Group& group, const Sink& sink);

  packer::Bundle bundle_;
  ThreadPool* pool_;
  MethodOptions options_;
  MemoryBudget budget_;
  std::unique_ptr<TextEncoder> encoder_;  // which uses all threads for one call
  std::vector<Worker> workers_;
  size_t most_workers_;
};

}  // namespace ferry::runner
