#include "proof/text_model.h"

#include <fmt/format.h>

#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/encoder_proof.h"

namespace ferry::proof {

Result<TextModel> TextModel::load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const runner::MethodOptions& options,
                                  const runner::DecodeOptions& decode) {
  TextModel model(bundle.manifest());
  if (bundle.manifest().program_style != kEncoderStyle) {
    model.decoder_ = FERRY_TRY(runner::load_decoder(bundle, pool, options, decode));
    return model;
  }
  if (decode.mode) return runner::wrong_mode(bundle, *decode.mode);
  model.encoder_ = FERRY_TRY(runner::TextEncoder::load(bundle, pool, options));
  return model;
}

int64_t TextModel::capacity() const {
  return decoder_ ? decoder_->capacity() : encoder_->sizes().tokens;
}

Result<ParityReport> TextModel::verify(const Reference& reference, const ParityBounds& bounds,
                                       const VerifyOptions& options) {
  return decoder_ ? proof::verify(*decoder_, *manifest_, reference, bounds, options)
                  : proof::verify(*encoder_, *manifest_, reference, bounds, options);
}

Result<std::unique_ptr<TensorSource>> TextModel::record(const std::vector<RecordedPrompt>& prompts,
                                                        const std::string& name) {
  return decoder_ ? record_reference(*decoder_, *manifest_, prompts, name)
                  : record_reference(*encoder_, *manifest_, prompts, name);
}

Status TextModel::continue_prompts(int64_t capacity, std::vector<RecordedPrompt>& prompts,
                                   int64_t least) {
  if (!decoder_) return {};
  return proof::continue_prompts(*decoder_, *manifest_, capacity, prompts, least);
}

}  // namespace ferry::proof
