#include "runner/token_embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "runner/decoder.h"

namespace ferry::runner {
namespace {

// Copies the first `width` values of rows that lie `stride` apart. Fills `to`.
void copy_rows(std::span<const float> from, int64_t stride, int64_t width, std::span<float> to) {
  if (stride == width) {
    std::ranges::copy(from.first(to.size()), to.begin());
    return;
  }
  for (auto row = to.begin(); row != to.end(); row += width) {
    std::ranges::copy(from.first(static_cast<size_t>(width)), row);
    from = from.subspan(static_cast<size_t>(stride));
  }
}

}  // namespace

bool TokenEmbedder::is_in(const packer::Bundle& bundle) {
  return bundle.manifest().find(kTokenEmbeddingRole) != nullptr;
}

Result<TokenEmbedder> TokenEmbedder::bind(ProgramSet& set, std::string_view method, DType ids,
                                          int64_t tokens) {
  const int64_t width = embedding_width(set.bundle().manifest());
  const PortType inputs[] = {{kTokensPort, ids, {1, tokens}}};
  const PortType outputs[] = {{kEmbeddingsPort, DType::kF32, {1, tokens, width}}};
  const int64_t values = tokens * width;
  return TokenEmbedder(FERRY_TRY(set.bind(method, inputs, outputs)), static_cast<size_t>(values));
}

void TokenEmbedder::set_rows(std::span<const EmbeddingRows> rows) {
  rows_.assign(rows.begin(), rows.end());
  if (!rows_.empty()) merged_.reserve(most_values_);
}

Status TokenEmbedder::run(const TensorView& ids) {
  chain_.input(0).shape = ids.shape;
  chain_.input(0).bytes = ids.bytes;
  FERRY_RETURN_IF_ERROR(chain_.run());
  output_ = chain_.output(0);
  return {};
}

Status TokenEmbedder::run(const TensorView& ids, int64_t position) {
  FERRY_RETURN_IF_ERROR(run(ids));
  const int64_t count = ids.shape[1];
  const int64_t width = output_.shape.back();
  const int64_t stride = row_width_ > 0 ? row_width_ : width;
  bool merged = false;
  for (const EmbeddingRows& run : rows_) {
    const int64_t size = std::ssize(run.values) / stride;
    const int64_t begin = std::max(run.first, position);
    const int64_t end = std::min(run.first + size, position + count);
    if (begin >= end) continue;
    if (!std::exchange(merged, true)) {
      merged_.resize(output_.bytes.size() / sizeof(float));
      std::memcpy(merged_.data(), output_.bytes.data(), output_.bytes.size());
    }
    copy_rows(run.values.subspan(static_cast<size_t>((begin - run.first) * stride)), stride, width,
              std::span(merged_).subspan(static_cast<size_t>((begin - position) * width),
                                         static_cast<size_t>((end - begin) * width)));
  }
  if (merged) output_.bytes = std::as_bytes(std::span(merged_));
  return {};
}

Status check_rows(const packer::Bundle& bundle, std::span<const EmbeddingRows> rows,
                  int64_t capacity) {
  if (rows.empty()) return {};
  if (!TokenEmbedder::is_in(bundle)) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: the text decoder takes tokens, not rows of images",
                            printable(bundle.path())));
  }
  const int64_t width = row_width(bundle.manifest());
  const bool placed = has_places(bundle.manifest());
  int64_t end = 0;
  for (const EmbeddingRows& run : rows) {
    if (std::ssize(run.values) % width != 0) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} values of image features are not whole rows of {}, the width "
                              "of the text decoder",
                              printable(bundle.path()), run.values.size(), width));
    }
    const int64_t size = std::ssize(run.values) / width;
    if (run.first < end || run.first > capacity || size > capacity - run.first) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} rows of image features at position {} do not fit behind "
                              "position {} in a context of {}",
                              printable(bundle.path()), size, run.first, end, capacity));
    }
    const int64_t frames = run.grid_frames;
    const bool known = frames >= 1 && size % frames == 0 && run.grid_rows >= 1 &&
                       run.grid_columns >= 1 && run.grid_rows <= size && run.grid_columns <= size &&
                       run.grid_rows * run.grid_columns == size / frames;
    const bool timed = run.frame_step >= 0 && run.frame_step <= kMostFrameStep;
    if (placed && !(known && timed)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: {} rows of image features at position {} have {} x {} x {} "
                              "places in time, {} apart",
                              printable(bundle.path()), size, run.first, frames, run.grid_rows,
                              run.grid_columns, run.frame_step));
    }
    if ((placed || has_placed_rows(bundle.manifest())) && end > 0 && run.first == end) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: two images without a token between them, at position {}: their "
                              "places are not known",
                              printable(bundle.path()), end));
    }
    end = run.first + size;
  }
  return {};
}

namespace {

// Returns an input of the text decoder; nullptr if none of its programs has it.
const packer::ManifestPort* decoder_input(const packer::Manifest& manifest, std::string_view name) {
  const packer::ManifestComponent* decoder = manifest.find(kTextDecoderRole);
  if (decoder == nullptr) return nullptr;
  for (const packer::ManifestProgram& program : decoder->programs) {
    for (const packer::ManifestMethod& method : program.methods) {
      const auto found = std::ranges::find(method.inputs, name, &packer::ManifestPort::name);
      if (found != method.inputs.end()) return &*found;
    }
  }
  return nullptr;
}

}  // namespace

bool takes_plain_rows(const packer::Manifest& manifest) {
  const packer::ManifestComponent* decoder = manifest.find(kTextDecoderRole);
  if (decoder == nullptr) return true;
  for (const packer::ManifestProgram& program : decoder->programs) {
    for (const packer::ManifestMethod& method : program.methods) {
      const auto found =
          std::ranges::find(method.probes, kEmbeddingsProbe, &packer::ManifestProbe::name);
      if (found != method.probes.end()) return false;
    }
  }
  return true;
}

bool has_places(const packer::Manifest& manifest) {
  return decoder_input(manifest, kRopePositionsPort) != nullptr;
}

int64_t deepstack_layers(const packer::Manifest& manifest) {
  const packer::ManifestPort* port =
      manifest.image_grid ? decoder_input(manifest, kDeepstackPort) : nullptr;
  return port != nullptr && port->shape.size() == 3 ? port->shape[0] : 0;
}

int64_t embedding_width(const packer::Manifest& manifest) {
  const packer::ManifestPort* port = manifest.version >= packer::kPlacedRowsManifestVersion
                                         ? decoder_input(manifest, kEmbeddingsPort)
                                         : nullptr;
  return port != nullptr && port->shape.size() == 3
             ? std::max(port->shape.back(), manifest.hidden_size)
             : manifest.hidden_size;
}

bool has_placed_rows(const packer::Manifest& manifest) {
  return embedding_width(manifest) > manifest.hidden_size;
}

int64_t row_width(const packer::Manifest& manifest) {
  return embedding_width(manifest) + manifest.hidden_size * deepstack_layers(manifest);
}

Result<std::unique_ptr<Embedding>> load_embedding(const packer::Bundle& bundle, ThreadPool& pool,
                                                  const MethodOptions& options,
                                                  MemoryBudget& budget) {
  if (!TokenEmbedder::is_in(bundle)) return std::unique_ptr<Embedding>();
  ProgramSet set = FERRY_TRY(ProgramSet::load(bundle, kTokenEmbeddingRole, pool, options, budget));
  TokenEmbedder embedder = FERRY_TRY(
      TokenEmbedder::bind(set, kForwardMethod, DType::kI64, bundle.manifest().prefill_length));
  return std::make_unique<Embedding>(Embedding{std::move(set), std::move(embedder)});
}

}  // namespace ferry::runner
