#include "runner/static_program/lookahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.h"

namespace ferry::runner {
namespace {

// Returns (window + gcap) * (ngram - 1) if the options are in range.
std::optional<int64_t> lookahead_rows(const LookaheadOptions& o) {
  if (o.ngram < 2 || o.window < 1 || o.gcap < 1) return std::nullopt;
  const auto columns = checked_add(o.window, o.gcap);
  return columns ? checked_mul(*columns, o.ngram - 1) : std::nullopt;
}

}  // namespace

Result<Lookahead> Lookahead::make(const LookaheadOptions& options, int64_t ar, int64_t vocab) {
  const std::string name =
      fmt::format("lookahead {},{},{}", options.ngram, options.window, options.gcap);
  const auto rows = lookahead_rows(options);
  if (!rows) {
    return fail(ErrorCode::kUsage,
                name + ": expected N,W,G with n-grams of 2 tokens or more, W and G of 1 or more");
  }
  if (*rows > ar) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} needs calls of {} tokens, (W + G) * (N - 1); those of this bundle "
                            "have {}",
                            name, *rows, ar));
  }
  const int64_t pool[] = {vocab, options.gcap, options.ngram - 1, 4};
  constexpr int64_t kMostBytes = int64_t{1} << 32;
  if (checked_numel(pool).value_or(INT64_MAX) > kMostBytes) {
    return fail(ErrorCode::kUsage, name + ": its n-grams take more than 4 GiB");
  }
  return Lookahead(options, vocab);
}

Lookahead::Lookahead(const LookaheadOptions& options, int64_t vocab)
    : options_(options), levels_(options.ngram - 1), random_(options.seed) {
  const auto rows = static_cast<size_t>((options_.window + options_.gcap) * levels_);
  const auto tokens = static_cast<size_t>(vocab);
  parents_.resize(rows);
  offsets_.resize(rows);
  ids_.resize(rows);
  branch_.resize(static_cast<size_t>(levels_ * options_.window));
  grams_.resize(tokens * static_cast<size_t>(options_.gcap * levels_));
  count_.resize(tokens);
  head_.resize(tokens);
  selected_ = std::make_unique<bool[]>(rows);
  active_ = std::make_unique<bool[]>(static_cast<size_t>(options_.gcap));
  lay_out();
}

// Row 0 is the current token. The first level continues row 0 as a chain. A diagonal continues its
// token in that chain, a guess continues row 0.
void Lookahead::lay_out() {
  for (int64_t level = 0; level < levels_; ++level) {
    for (int64_t column = 0; column < options_.window; ++column) {
      const size_t row = index(level, column);
      parents_[row] = static_cast<int32_t>(
          level == 0 ? column - 1 : static_cast<int64_t>(index(level - 1, column)));
      offsets_[row] = static_cast<int32_t>(level + column);
    }
  }
  for (int64_t guess = 0; guess < options_.gcap; ++guess) {
    for (int64_t step = 0; step < levels_; ++step) {
      const size_t row = guess_index(guess, step);
      parents_[row] = step == 0 ? 0 : static_cast<int32_t>(row) - 1;
      offsets_[row] = static_cast<int32_t>(step + 1);
    }
  }
}

void Lookahead::reset() {
  begun_ = false;
  random_ = Random(options_.seed);
  std::ranges::fill(count_, 0);
  std::ranges::fill(head_, 0);
}

void Lookahead::begin(std::span<const int64_t> tokens) {
  for (int32_t& id : branch_) {
    id = static_cast<int32_t>(tokens[static_cast<size_t>(random_.next() % tokens.size())]);
  }
  begun_ = true;
}

std::span<const int32_t> Lookahead::ids(int64_t token) {
  branch_[0] = static_cast<int32_t>(token);
  std::ranges::copy(branch_, ids_.begin());
  const int64_t known = count_[static_cast<size_t>(token)];
  for (int64_t guess = 0; guess < options_.gcap; ++guess) {
    active_[static_cast<size_t>(guess)] = guess < known;
    const std::span<int32_t> ids = std::span(ids_).subspan(guess_index(guess, 0));
    if (guess < known) {
      std::ranges::copy(gram(token, guess), ids.begin());
    } else {
      std::ranges::fill(ids.first(static_cast<size_t>(levels_)), 0);
    }
  }
  std::fill_n(selected_.get(), parents_.size(), false);
  step_ = 0;
  row_ = 0;
  selected_[0] = true;
  return ids_;
}

// Stores the n-gram of a diagonal whose first token is `key`, unless it is stored already.
void Lookahead::insert(size_t column, int32_t key) {
  int32_t& count = count_[static_cast<size_t>(key)];
  int32_t& head = head_[static_cast<size_t>(key)];
  const auto matches = [&](int64_t slot) {
    const std::span<int32_t> known = gram(key, slot);
    for (int64_t level = 0; level < levels_; ++level) {
      if (known[static_cast<size_t>(level)] !=
          branch_[index(level, static_cast<int64_t>(column))]) {
        return false;
      }
    }
    return true;
  };
  for (int64_t slot = 0; slot < count; ++slot) {
    if (matches(slot)) return;
  }
  for (int64_t level = 0; level < levels_; ++level) {
    gram(key, head)[static_cast<size_t>(level)] =
        branch_[index(level, static_cast<int64_t>(column))];
  }
  count = static_cast<int32_t>(std::min<int64_t>(options_.gcap, count + 1));
  head = static_cast<int32_t>((head + 1) % options_.gcap);
}

// ids_ still has the first level, whose tokens are the keys.
void Lookahead::grow(std::span<const int32_t> likeliest) {
  const auto width = static_cast<std::ptrdiff_t>(options_.window);
  std::copy(branch_.begin() + width, branch_.end(), branch_.begin());
  std::ranges::copy(likeliest, branch_.end() - width);
  for (size_t column = 0; column < end_rows(); ++column) insert(column, ids_[column]);
}

void Lookahead::accept(int64_t token) {
  row_.reset();
  for (int64_t guess = 0; guess < options_.gcap; ++guess) {
    bool& active = active_[static_cast<size_t>(guess)];
    const size_t row = guess_index(guess, std::min(step_, levels_ - 1));
    active = active && step_ < levels_ && ids_[row] == token;
    if (active && !row_) row_ = row;
  }
  ++step_;
  if (row_) selected_[*row_] = true;
}

}  // namespace ferry::runner
