#include "converters/row_layouts.h"

namespace ferry {
namespace {

// Appends a run, merged with the one before it where they touch.
void append(std::vector<RowRun>& runs, int64_t begin, int64_t count) {
  if (!runs.empty() && runs.back().begin + runs.back().count == begin) {
    runs.back().count += count;
  } else {
    runs.push_back({.entry = 0, .begin = begin, .count = count});
  }
}

// One run of `count` rows at `offset` in each of the `groups` groups of `stride` rows.
std::vector<RowRun> strided(int64_t groups, int64_t stride, int64_t offset, int64_t count) {
  std::vector<RowRun> runs;
  for (int64_t g = 0; g < groups; ++g) append(runs, g * stride + offset, count);
  return runs;
}

}  // namespace

std::vector<RowRun> rows_range(int64_t begin, int64_t count) {
  return {{.entry = 0, .begin = begin, .count = count}};
}

std::vector<RowRun> qkvz_rows(const LinearAttentionConfig& config, QkvzPart part) {
  const int64_t dk = config.key_dim;
  const int64_t values = config.groups() * config.value_dim;  // rows of v, and of z, in a group
  const int64_t stride = 2 * dk + 2 * values;
  switch (part) {
    case QkvzPart::kQuery: return strided(config.key_heads, stride, 0, dk);
    case QkvzPart::kKey: return strided(config.key_heads, stride, dk, dk);
    case QkvzPart::kValue: return strided(config.key_heads, stride, 2 * dk, values);
    case QkvzPart::kGate: return strided(config.key_heads, stride, 2 * dk + values, values);
  }
  return {};
}

std::vector<RowRun> qkv_rows(const LinearAttentionConfig& config) {
  std::vector<RowRun> all;
  for (QkvzPart part : {QkvzPart::kQuery, QkvzPart::kKey, QkvzPart::kValue}) {
    for (const RowRun& run : qkvz_rows(config, part)) append(all, run.begin, run.count);
  }
  return all;
}

std::vector<RowRun> ba_rows(const LinearAttentionConfig& config, BaPart part) {
  const int64_t r = config.groups();
  return strided(config.key_heads, 2 * r, part == BaPart::kBeta ? 0 : r, r);
}

int64_t qkvz_row_count(const LinearAttentionConfig& config) {
  return 2 * config.key_size() + 2 * config.value_size();
}

int64_t ba_row_count(const LinearAttentionConfig& config) { return 2 * config.value_heads; }

}  // namespace ferry
