#include "runner/recorded_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "runner/parity.h"

namespace ferry {
namespace {

constexpr int64_t kPromptTokens = 24;
constexpr int64_t kGreedyTokens = 8;

// Tensors in memory. Thread-safe once filled.
class MemorySource : public TensorSource {
 public:
  explicit MemorySource(std::string name) : path_(std::move(name)) {
    files_.push_back({.name = path_});
  }

  template <class T>
  void add(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    entries_.push_back({.name = std::move(name),
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .bytes = bytes.size(),
                        .offset = files_[0].bytes});
    files_[0].bytes += bytes.size();
    contents_.push_back(std::move(bytes));
  }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const std::vector<std::byte>& bytes = contents_[index];
    if (offset > bytes.size() || out.size() > bytes.size() - offset) {
      return fail(ErrorCode::kInternal, "read beyond a recorded tensor");
    }
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

 private:
  std::string path_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> contents_;
};

// Runs one prompt and adds its tensors to `out` under "NAME.".
Status record_prompt(Decoder& decoder, const Manifest& manifest, const std::vector<int64_t>& ids,
                     const std::string& name, MemorySource& out) {
  const auto tokens = static_cast<int64_t>(ids.size());
  std::map<std::string, std::vector<float>> probes;
  FERRY_CHECK(decoder.set_probe_sink(
      [&](const std::string& probe, int64_t, int64_t, std::span<const float> values) {
        std::vector<float>& all = probes[probe];
        all.insert(all.end(), values.begin(), values.end());
      }));
  decoder.restart(tokens);
  std::vector<float> logits, row;
  for (const int64_t& id : ids) {
    row = FERRY_TRY(decoder.forward({&id, 1}));
    logits.insert(logits.end(), row.begin(), row.end());
  }
  FERRY_CHECK(decoder.set_probe_sink({}));

  std::vector<int64_t> greedy;
  std::vector<float> greedy_logits;
  // The last token is chosen without being run itself.
  const int64_t room = std::min(kGreedyTokens, manifest.context_length - tokens + 1);
  while (static_cast<int64_t>(greedy.size()) < room) {
    greedy.push_back(static_cast<int64_t>(argmax(row)));
    greedy_logits.insert(greedy_logits.end(), row.begin(), row.end());
    if (static_cast<int64_t>(greedy.size()) < room) {
      row = FERRY_TRY(decoder.forward({&greedy.back(), 1}));
    }
  }

  out.add(name + ".input_ids", DType::kI64, {1, tokens}, ids);
  out.add(name + ".logits", DType::kF32, {1, tokens, manifest.vocab_size}, logits);
  const auto chosen = static_cast<int64_t>(greedy.size());
  out.add(name + ".greedy_ids", DType::kI64, {chosen}, greedy);
  out.add(name + ".greedy_logits", DType::kF32, {chosen, manifest.vocab_size}, greedy_logits);
  for (const auto& [probe, values] : probes) {
    if (values.size() != static_cast<size_t>(tokens * manifest.hidden_size)) continue;
    out.add(fmt::format("{}.{}", name, probe), DType::kF32, {1, tokens, manifest.hidden_size},
            values);
  }
  return {};
}

}  // namespace

std::vector<std::vector<int64_t>> probing_prompts(const Manifest& manifest) {
  const int64_t longest = std::max<int64_t>(1, manifest.context_length - kGreedyTokens + 1);
  std::vector<std::vector<int64_t>> prompts;
  uint64_t state = 0x9e3779b97f4a7c15;  // any odd constant; fixed, so that reports repeat
  for (const int64_t length : {std::min(longest, kPromptTokens), int64_t{1}}) {
    std::vector<int64_t> ids(static_cast<size_t>(length));
    for (int64_t& id : ids) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      id = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(manifest.vocab_size));
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

Result<std::unique_ptr<TensorSource>> record_reference(
    Decoder& decoder, const Manifest& manifest, const std::vector<std::vector<int64_t>>& prompts,
    const std::string& name) {
  auto source = std::make_unique<MemorySource>(name);
  for (size_t i = 0; i < prompts.size(); ++i) {
    FERRY_CHECK(record_prompt(decoder, manifest, prompts[i], std::to_string(i), *source));
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry
