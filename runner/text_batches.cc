#include "runner/text_batches.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace ferry::runner {
namespace {

// A call of more tokens is no faster for each of them, and hides more scores between texts.
constexpr int64_t kCallTokens = 256;

// Lends each of some workers to one thread at a time.
class Lender {
 public:
  explicit Lender(size_t count) {
    for (size_t i = 0; i < count; ++i) free_.push_back(i);
  }
  size_t take() {
    const std::lock_guard lock(mutex_);
    const size_t worker = free_.back();
    free_.pop_back();
    return worker;
  }
  void give_back(size_t worker) {
    const std::lock_guard lock(mutex_);
    free_.push_back(worker);
  }

 private:
  std::mutex mutex_;
  std::vector<size_t> free_;
};

}  // namespace

Result<TextBatches> TextBatches::load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const MethodOptions& options) {
  TextBatches batches(bundle, pool, options);
  batches.encoder_ = std::make_unique<TextEncoder>(
      FERRY_TRY(TextEncoder::load(bundle, pool, options, batches.budget_)));
  return batches;
}

std::vector<TextBatches::Group> TextBatches::groups_of(std::span<const TextTokens> texts) const {
  const int64_t most = std::min(sizes().texts_tokens, kCallTokens);
  std::vector<Group> groups;
  int64_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens += std::ssize(texts[i].ids);
    if (groups.empty() || tokens > most) {
      groups.push_back({i, i});
      tokens = std::ssize(texts[i].ids);
    }
    groups.back().end = i + 1;
  }
  return groups;
}

// There are fewer workers where memory is short.
void TextBatches::add_workers(size_t wanted) {
  while (workers_.size() < std::min(wanted, most_workers_)) {
    Worker worker{std::make_unique<ThreadPool>(1), nullptr};
    auto encoder = TextEncoder::load(bundle_, *worker.pool, options_, budget_);
    if (!encoder) {
      most_workers_ = workers_.size();
      return;
    }
    worker.encoder = std::make_unique<TextEncoder>(*std::move(encoder));
    workers_.push_back(std::move(worker));
  }
}

Status TextBatches::encode_group(TextEncoder& encoder, std::span<const TextTokens> texts,
                                 const Group& group, const Sink& sink) {
  if (group.end - group.begin == 1) {
    sink(group.begin, FERRY_TRY(encoder.encode(texts[group.begin].ids, texts[group.begin].types)));
    return {};
  }
  const auto members = texts.subspan(group.begin, group.end - group.begin);
  const EncodedText all = FERRY_TRY(encoder.encode_texts(members));
  const auto width = static_cast<size_t>(encoder.sizes().width);
  const auto values = static_cast<size_t>(encoder.sizes().embedding_width);
  const auto labels = static_cast<size_t>(encoder.sizes().labels);
  size_t token = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const size_t tokens = members[i].ids.size();
    const size_t row = encoder.sizes().per_token ? token : i;
    const size_t rows = encoder.sizes().per_token ? tokens : 1;
    sink(group.begin + i, {.states = all.states.subspan(token * width, tokens * width),
                           .embedding = all.embedding.subspan(i * values, values),
                           .logits = all.logits.subspan(row * labels, rows * labels)});
    token += tokens;
  }
  return {};
}

Status TextBatches::encode(std::span<const TextTokens> texts, const Sink& sink) {
  const std::vector<Group> groups = groups_of(texts);
  if (groups.size() > 1) add_workers(groups.size());
  if (groups.size() < 2 || workers_.size() < 2) {
    for (const Group& group : groups) {
      FERRY_RETURN_IF_ERROR(encode_group(*encoder_, texts, group, sink));
    }
    return {};
  }
  std::vector<Status> done(groups.size());
  Lender lender(workers_.size());
  pool_->parallel_for(groups.size(), [&](size_t i) {
    const size_t worker = lender.take();
    done[i] = encode_group(*workers_[worker].encoder, texts, groups[i], sink);
    lender.give_back(worker);
  });
  for (Status& status : done) FERRY_RETURN_IF_ERROR(std::move(status));
  return {};
}

}  // namespace ferry::runner
