#include "runner/source_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/encoder_probes.h"

namespace ferry::runner {

bool SourceEncoder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kSourceEncoderRole) != nullptr;
}

Result<int64_t> SourceEncoder::capacity_in(const packer::Bundle& bundle) {
  const packer::ManifestComponent* component = bundle.manifest().find(kSourceEncoderRole);
  if (component == nullptr) {
    return bad_input(
        fmt::format("{}: has no component {}", printable(bundle.path()), kSourceEncoderRole));
  }
  for (const packer::ManifestProgram& program : component->programs) {
    const packer::ManifestMethod* method = program.find(kForwardMethod);
    if (method == nullptr) continue;
    for (const packer::ManifestPort& port : method->inputs) {
      const Shape& shape = port.shape;
      if (port.name == kSourceIdsPort && shape.size() == 2 && shape[0] == 1 && shape[1] > 0) {
        return shape[1];
      }
    }
  }
  return bad_input(fmt::format("{}: the source encoder has no input {} of i64 [1, tokens]",
                               printable(bundle.path()), kSourceIdsPort));
}

Result<int64_t> SourceEncoder::start_token_in(const packer::Bundle& bundle) {
  const std::optional<int64_t>& start = bundle.manifest().decoder_start_id;
  if (start) return *start;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the checkpoint states neither decoder_start_token_id nor "
                          "bos_token_id, with which an answer begins",
                          printable(bundle.path())));
}

Result<SourceEncoder> SourceEncoder::load(const packer::Bundle& bundle,
                                          std::span<const PortType> outputs, ThreadPool& pool,
                                          const MethodOptions& options, MemoryBudget& budget) {
  const int64_t capacity = FERRY_TRY(capacity_in(bundle));
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kSourceEncoderRole, pool, options, budget));
  const PortType input = {kSourceIdsPort, DType::kI64, {1, capacity}};
  MethodChain chain = FERRY_TRY(set.bind(kForwardMethod, {&input, 1}, outputs));
  return SourceEncoder(std::move(set), std::move(chain), capacity);
}

Status SourceEncoder::encode(std::span<const int64_t> tokens) {
  const std::string where = printable(set_.bundle().path());
  const int64_t count = std::ssize(tokens), vocab = set_.bundle().manifest().vocab_size;
  if (count < 1 || count > capacity_) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a text of {} tokens, the encoder takes 1 to {} (convert "
                            "--max-source)",
                            where, count, capacity_));
  }
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return fail(ErrorCode::kUsage, fmt::format("{}: token {} of the text is outside of the "
                                               "vocabulary of {}",
                                               where, token, vocab));
  }
  chain_.input(0).shape[1] = count;
  chain_.input(0).bytes = std::as_bytes(tokens);
  return chain_.run();
}

Status SourceEncoder::set_probe_sink(ProbeSink sink) {
  *sink_ = std::move(sink);
  if (!*sink_ || std::exchange(observing_, true)) return {};
  return observe_encoder(chain_, sink_.get());
}

}  // namespace ferry::runner
