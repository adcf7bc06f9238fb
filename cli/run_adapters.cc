#include "cli/run_adapters.h"

#include <fmt/format.h>

#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::cli {

Result<AdapterDecoder> AdapterDecoder::load(const packer::Bundle& bundle, ThreadPool& pool,
                                            const runner::MethodOptions& method,
                                            const runner::DecodeOptions& decode) {
  AdapterDecoder made(bundle, pool, method, decode);
  made.decoder_ = FERRY_TRY(runner::load_decoder(made.bundle_, pool, method, decode));
  return made;
}

Status AdapterDecoder::check(const std::string& adapter) const {
  if (adapter == bundle_.adapter()) return {};
  FERRY_RETURN_IF_ERROR(bundle_.with_adapter(adapter));
  // The encoders of images and sounds are loaded once, with the adapter of the start.
  if (packer::row_encoders(bundle_.manifest()).empty()) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: takes images or sounds: the adapter stays that of --adapter",
                          printable(bundle_.path())));
}

Status AdapterDecoder::choose(const std::string& adapter) {
  FERRY_RETURN_IF_ERROR(check(adapter));
  if (adapter == bundle_.adapter()) return {};
  bundle_ = FERRY_TRY(bundle_.with_adapter(adapter));
  decoder_.reset();  // its memory counts in the budget of the next one
  decoder_ = FERRY_TRY(runner::load_decoder(bundle_, *pool_, method_, decode_));
  return {};
}

}  // namespace ferry::cli
