#include "runner/decoder_group.h"

#include <fmt/format.h>

#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/memory.h"

namespace ferry::runner {

Result<DecoderGroup> DecoderGroup::load(const packer::Bundle& bundle, ThreadPool& pool,
                                        const MethodOptions& options, size_t count) {
  if (count < 1 || count > kMostSequences) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} sequences: 1 to {} are supported", count, kMostSequences));
  }
  const std::string& style = bundle.manifest().program_style;
  if (style == kStaticStyle || style == kEncoderStyle) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{}: has {} programs; several sequences at a time are for stateful ones",
                    printable(bundle.path()), style));
  }
  DecoderGroup group;
  MemoryBudget budget(options.memory);
  for (size_t i = 0; i < count; ++i) {
    group.decoders_.push_back(
        FERRY_TRY(StatefulDecoder::load(bundle, pool, options, nullptr, budget)));
  }
  return group;
}

Status DecoderGroup::forward(std::span<Turn> turns) {
  std::vector<StatefulDecoder*> decoders;
  std::vector<int64_t> tokens;
  for (const Turn& turn : turns) {
    decoders.push_back(&decoders_[turn.sequence]);
    tokens.push_back(turn.token);
  }
  std::vector<std::span<const float>> logits(turns.size());
  FERRY_RETURN_IF_ERROR(StatefulDecoder::forward_together(decoders, tokens, logits));
  for (size_t i = 0; i < turns.size(); ++i) turns[i].logits = logits[i];
  return {};
}

}  // namespace ferry::runner
