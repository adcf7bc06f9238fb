// AdapterDecoder is the decoder of a bundle with one of its adapters, which can be changed between
// answers.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"

namespace ferry::cli {

// Move-only. Loading a decoder again takes milliseconds, because the bundle stays open and mapped.
class AdapterDecoder {
 public:
  // Loads the decoder with the adapter that `bundle` has chosen. `pool` must outlive the object.
  static Result<AdapterDecoder> load(const packer::Bundle& bundle, ThreadPool& pool,
                                     const runner::MethodOptions& method,
                                     const runner::DecodeOptions& decode);

  runner::Decoder& decoder() { return *decoder_; }
  const packer::Bundle& bundle() const { return bundle_; }
  std::string adapter() const { return bundle_.adapter(); }

  // kUsage for an adapter that the bundle does not have, and for a change in a bundle that takes
  // images.
  Status check(const std::string& adapter) const;
  // Chooses another adapter, or none for an empty name. The decoder then begins a new sequence. No
  // decoder is left after an error of loading.
  Status choose(const std::string& adapter);

 private:
  AdapterDecoder(const packer::Bundle& bundle, ThreadPool& pool,
                 const runner::MethodOptions& method, const runner::DecodeOptions& decode)
      : bundle_(bundle), pool_(&pool), method_(method), decode_(decode) {}

  packer::Bundle bundle_;
  ThreadPool* pool_;
  runner::MethodOptions method_;
  runner::DecodeOptions decode_;
  std::unique_ptr<runner::Decoder> decoder_;
};

}  // namespace ferry::cli
