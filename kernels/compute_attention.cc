// Attention over caches, and bmm.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_attention.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_keys-inl.h"
#include "kernels/compute_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Computes out = a * b for rows [begin, end) of one batch.
void bmm_task(const WeightedSums& sums) {
  for (size_t i = 0; i < sums.m; ++i) {
    std::memset(sums.out + i * sums.out_stride, 0, sums.width * sizeof(float));
  }
  weighted_sums(sums);
}

// ---- attention

void load_queries(const Attention& a) {
  const size_t group = a.args.group(), dim = a.args.dim, padded = a.args.padded_dim();
  for (size_t r = 0; r < a.count * group; ++r) {
    const float* from = a.args.query + a.query_offset(r / group) + r % group * dim;
    std::memcpy(a.query + r * padded, from, dim * sizeof(float));
    std::memset(a.query + r * padded + dim, 0, (padded - dim) * sizeof(float));
  }
}

void start_sums(const Attention& a) {
  const size_t rows = a.count * a.args.group(), padded = a.args.padded_dim();
  std::memset(a.sums, 0, rows * padded * sizeof(float));
  for (size_t r = 0; r < rows; ++r) {
    a.top[r] = kMinusInfinity;
    a.total[r] = 0.0f;
  }
}

// Computes the scores of keys [key + begin, key + end) for the queries [i, i_end).
void score(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  for_key_rows(a, a.args.key, key, begin, end, [&](size_t j, size_t n, const KeyRows& rows) {
    const RowProducts p{
        a.query + i * group * padded,         padded,    (i_end - i) * group, rows.at, rows.stride,
        a.scores + i * group * kKeyBlock + j, kKeyBlock, a.args.dim};
    products<float>(p, 0, n);
  });
}

void add_value_rows(const Attention& a, size_t i, size_t i_end, size_t j, size_t n,
                    const KeyRows& rows) {
  const size_t group = a.args.group(), padded = a.args.padded_dim();
  const WeightedSums sums{
      a.scores + i * group * kKeyBlock + j, kKeyBlock, (i_end - i) * group, rows.at, rows.stride, n,
      a.sums + i * group * padded,          padded,    a.args.dim};
  weighted_sums(sums);
}

void add_values(const Attention& a, size_t i, size_t i_end, size_t key, size_t begin, size_t end) {
  for_key_rows(a, a.args.value, key, begin, end, [&](size_t j, size_t n, const KeyRows& rows) {
    add_value_rows(a, i, i_end, j, n, rows);
  });
}

// Computes scores * scale + mask over n keys, and pads with minus infinity to a whole vector.
// Returns the largest score.
HWY_INLINE float scale_scores(float* scores, const float* mask, float scale, size_t n) {
  const F32 d;
  const F32x1 d1;
  size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const VF32 m = mask ? load_f32(d, mask + j) : hn::Zero(d);
    hn::StoreU(hn::MulAdd(load_f32(d, scores + j), hn::Set(d, scale), m), d, scores + j);
  }
  for (; j < n; ++j) {
    const auto m = mask ? load_f32(d1, mask + j) : hn::Zero(d1);
    hn::StoreU(hn::MulAdd(load_f32(d1, scores + j), hn::Set(d1, scale), m), d1, scores + j);
  }
  for (; j % kLanes != 0; ++j) scores[j] = kMinusInfinity;
  VF32 top = hn::Set(d, kMinusInfinity);
  for (size_t c = 0; c < n; c += kLanes) top = hn::Max(top, load_f32(d, scores + c));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// Turns the scores [begin, end) of row r into weights.
void weigh(const Attention& a, size_t r, const float* mask, size_t begin, size_t end) {
  const F32 d;
  const size_t n = end - begin;
  float* scores = a.scores + r * kKeyBlock + begin;
  if (mask != nullptr) mask += begin;
  const float top = scale_scores(scores, mask, a.args.scale, n);
  if (top == kMinusInfinity) {  // only masked keys: weights are 0, not e^NaN
    std::memset(scores, 0, n * sizeof(float));
    return;
  }
  VF32 total = hn::Zero(d);
  for (size_t j = 0; j < n; j += kLanes) {
    const VF32 weight = exp_lanes(d, hn::Sub(load_f32(d, scores + j), hn::Set(d, top)));
    hn::StoreU(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  a.total[r] = sum1(total);
  a.top[r] = top;
}

// The factors by which joined sums of rows [r, r + kLanes) are multiplied.
struct Factors {
  HWY_ALIGN float kept[kLanes] = {};   // those of the earlier keys
  HWY_ALIGN float added[kLanes] = {};  // those of the block
};

// Sets the new maxima and totals of `n` rows from row r on, and returns the factors.
HWY_INLINE Factors join_totals(const Attention& block, const Attention& to, size_t r, size_t n) {
  const F32 d;
  Factors f;
  for (size_t i = 0; i < n; ++i) {
    const float mine = block.top[r + i], before = to.top[r + i];
    const float top = mine <= before ? before : mine;  // NaN is kept
    f.kept[i] = before - top;
    f.added[i] = mine - top;
    if (mine != kMinusInfinity) to.top[r + i] = top;
  }
  hn::Store(exp_lanes(d, hn::Load(d, f.kept)), d, f.kept);
  hn::Store(exp_lanes(d, hn::Load(d, f.added)), d, f.added);
  for (size_t i = 0; i < n; ++i) {
    if (block.top[r + i] == kMinusInfinity) continue;
    to.total[r + i] = to.total[r + i] * f.kept[i] + block.total[r + i] * f.added[i];
  }
  return f;
}

// Adds the sums of a block of keys to the sums of the earlier blocks.
void join(const Attention& block, const Attention& to) {
  const F32 d;
  const size_t padded = to.args.padded_dim(), rows = to.count * to.args.group();
  for (size_t r = 0; r < rows; r += kLanes) {
    const size_t n = r + kLanes < rows ? kLanes : rows - r;
    const Factors f = join_totals(block, to, r, n);
    for (size_t i = 0; i < n; ++i) {
      if (block.top[r + i] == kMinusInfinity) continue;  // the query saw no key of the block
      float* sums = to.sums + (r + i) * padded;
      const float* more = block.sums + (r + i) * padded;
      for (size_t c = 0; c < padded; c += kLanes) {
        const VF32 before = hn::Mul(load_f32(d, sums + c), hn::Set(d, f.kept[i]));
        hn::StoreU(hn::MulAdd(load_f32(d, more + c), hn::Set(d, f.added[i]), before), d, sums + c);
      }
    }
  }
}

// A block of keys. The first query that sees any of its keys sees `common` keys; later queries see
// more. The common keys are computed for all queries together, the rest for each query alone.
struct KeyBlock {
  size_t key, first, common;
  size_t end = kKeyBlock;  // no query sees a later key

  KeyBlock(const Attention& a, size_t from) : key(from), first(0) {
    while (a.seen(first) <= key) ++first;
    common = seen(a, first);
  }
  size_t seen(const Attention& a, size_t i) const {
    const size_t n = a.seen(i) - key;
    return n < end ? n : end;
  }
};

// With a mask, only the keys from `begin` on are weighed.
void score_rest_and_weigh(const Attention& a, const KeyBlock& b, size_t begin) {
  for (size_t i = b.first; i < a.count; ++i) {
    const size_t seen = b.seen(a, i);
    if (seen > b.common) score(a, i, i + 1, b.key, b.common, seen);
    const float* mask = a.args.mask;
    if (mask != nullptr) mask += (a.first + i) * a.args.context + b.key;
    for (size_t h = 0; h < a.args.group(); ++h) weigh(a, i * a.args.group() + h, mask, begin, seen);
  }
}

void add_rest(const Attention& a, const KeyBlock& b) {
  for (size_t i = b.first; i < a.count; ++i) {
    if (b.seen(a, i) > b.common) add_values(a, i, i + 1, b.key, b.common, b.seen(a, i));
  }
}

// Computes the block of keys from `key` on for `count` heads. The heads take turns at a few keys,
// whose rows are adjacent. If the queries are few, memory limits: the keys of the next turn and the
// values of this one are fetched meanwhile.
void attend(const Attention* heads, size_t count, size_t key, const SeenKeys& keys) {
  const Attention& any = heads[0];
  KeyBlock b(any, key);
  if (keys.end <= key || keys.begin >= key + b.common) return;
  const size_t begin = keys.begin > key ? keys.begin - key : 0;
  if (keys.end - key < b.common) b.end = b.common = keys.end - key;
  if (any.args.mask && all_masked(any, key, b.common)) return;
  const bool few = any.args.rows() <= kFewQueryRows;
  const size_t turn = few ? kKeyBlock / 2 : count == 1 ? kKeyBlock : 12;
  const auto in_turn = [&](auto&& work) HWY_ATTR {
    for (size_t j = begin; j < b.common; j += turn) {
      const size_t end = j + turn < b.common ? j + turn : b.common;
      for (size_t h = 0; h < count; ++h) work(heads[h], j, end);
    }
  };
  in_turn([&](const Attention& a, size_t j, size_t end) HWY_ATTR {
    if (few) {
      fetch_rows(a, a.args.key, key, end, end + turn < b.common ? end + turn : b.common);
      fetch_rows(a, a.args.value, key, j, end);
    }
    score(a, b.first, a.count, key, j, end);
  });
  for (size_t h = 0; h < count; ++h) score_rest_and_weigh(heads[h], b, begin);
  in_turn([&](const Attention& a, size_t j, size_t end)
              HWY_ATTR { add_values(a, b.first, a.count, key, j, end); });
  for (size_t h = 0; h < count; ++h) add_rest(heads[h], b);
}

// Computes one block of keys. The sums of a head are zero if its queries see none of the keys.
void attend_block(const Attention* heads, size_t count, size_t block, const SeenKeys& keys) {
  for (size_t h = 0; h < count; ++h) start_sums(heads[h]);
  const size_t key = block * kKeyBlock;
  if (key < heads[0].seen(heads[0].count - 1)) attend(heads, count, key, keys);
}

// A row that saw no key, or only keys masked with minus infinity, is zero.
void write_out(const Attention& a) {
  const size_t group = a.args.group(), dim = a.args.dim;
  for (size_t r = 0; r < a.count * group; ++r) {
    const float* sums = a.sums + r * a.args.padded_dim();
    float* out = a.args.out + a.query_offset(r / group) + r % group * dim;
    const float total = a.total[r] == 0.0f ? 1.0f : a.total[r];
    for (size_t c = 0; c < dim; ++c) out[c] = sums[c] / total;
  }
}

// Computes all blocks of keys of one head. task.sums has two times block_values() values.
void sdpa_whole_task(const SdpaArgs& args, const SdpaTask& task) {
  const Attention all = attention(args, task, task.begin);
  SdpaTask next = task;
  next.sums += args.block_values();
  const Attention block = attention(args, next, task.begin);
  load_queries(all);
  const SeenKeys keys = seen_keys(all);
  attend_block(&all, 1, 0, keys);
  for (size_t i = 1; i < args.key_blocks(task.block); ++i) {
    attend_block(&block, 1, i, keys);
    join(block, all);
  }
  write_out(all);
}

SeenKeys sdpa_load_task(const SdpaArgs& args, const SdpaTask& task) {
  for (size_t h = task.begin; h < task.end; ++h) load_queries(attention(args, task, h));
  return seen_keys(attention(args, task, task.begin));
}

// Computes one block of keys of up to kTurnHeads heads. No task reads the scores of another head.
void sdpa_block_task(const SdpaArgs& args, const SdpaTask& task) {
  static_assert(kTurnHeads == 8);
  const auto head = [&](size_t i) {
    const size_t h = task.begin + i;
    return attention(args, task, h < task.end ? h : task.begin);
  };
  const Attention heads[] = {head(0), head(1), head(2), head(3),
                             head(4), head(5), head(6), head(7)};
  attend_block(heads, task.end - task.begin, task.key_block, task.keys);
}

// Joins the blocks of keys of the heads. They lie block_values() apart.
void sdpa_join_task(const SdpaArgs& args, const SdpaTask& task) {
  for (size_t h = task.begin; h < task.end; ++h) {
    const Attention all = attention(args, task, h);
    SdpaTask next = task;
    for (size_t i = 1; i < args.key_blocks(task.block); ++i) {
      next.sums += args.block_values();
      join(attention(args, next, h), all);
    }
    write_out(all);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>
#include <functional>

#include "kernels/compute.h"
#include "kernels/compute_scratch.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(bmm_task);
HWY_EXPORT(sdpa_whole_task);
HWY_EXPORT(sdpa_load_task);
HWY_EXPORT(sdpa_block_task);
HWY_EXPORT(sdpa_join_task);

constexpr size_t kBmmRows = 32;
constexpr size_t kBmmCols = 256;
constexpr size_t kAttentionRows = 32;
constexpr size_t kMaxSplitBlocks = 64;

size_t parts(size_t n, size_t size) { return (n + size - 1) / size; }

// Runs a task for each block of queries and head.
void sdpa_whole(const SdpaArgs& args, ThreadPool& pool) {
  const auto run = [&](size_t index) {
    const Scratch own(args.query_values() + 2 * args.block_values());
    const size_t block = args.blocks - 1 - index % args.blocks;  // the longest block first
    const size_t head = index / args.blocks;
    HWY_DYNAMIC_DISPATCH(sdpa_whole_task)
    (args, {block, head, head + 1, 0, own.data(), own.data() + args.query_values(), 0, {}});
  };
  pool.parallel_for(args.batch * args.kv_heads * args.blocks, std::ref(run));
}

// Runs a task for some heads and each block of keys. A single query is bound by memory, so heads
// that lie side by side stay in one task if enough tasks remain.
void sdpa_split(const SdpaArgs& args, ThreadPool& pool) {
  const size_t heads = args.batch * args.kv_heads;
  const size_t most = parts(std::max<size_t>(1, args.context), kKeyBlock);
  const size_t stride = most * args.block_values();
  // The scratch memory is allocated here, of equal size in every call. If threads allocated it,
  // chance would decide which thread needs some, and so whether decoding allocates.
  const size_t queries = args.blocks * heads * args.query_values();
  const Scratch scratch(queries + args.blocks * heads * stride);
  const auto task = [&](size_t block, size_t begin, size_t end) {
    const size_t head = block * heads + begin;
    return SdpaTask{block,
                    begin,
                    end,
                    0,
                    scratch.data() + head * args.query_values(),
                    scratch.data() + queries + head * stride,
                    stride,
                    {}};
  };
  std::array<SeenKeys, kMaxSplitBlocks> keys;
  for (size_t block = 0; block < args.blocks; ++block) {
    keys[block] = HWY_DYNAMIC_DISPATCH(sdpa_load_task)(args, task(block, 0, heads));
  }
  const size_t key_blocks = args.key_blocks(args.blocks - 1), pieces = key_blocks * args.blocks;
  const size_t step =
      std::clamp<size_t>(heads * pieces / (4 * pool.size()), 1, std::min(kTurnHeads, heads));
  const size_t steps = parts(heads, step);
  const auto run = [&](size_t index) {
    const size_t begin = index % steps * step, block = index / steps % args.blocks;
    const size_t key_block = index / steps / args.blocks;
    if (key_block >= args.key_blocks(block)) return;
    SdpaTask mine = task(block, begin, std::min(heads, begin + step));
    mine.key_block = key_block;
    mine.sums += key_block * args.block_values();
    mine.keys = keys[block];
    HWY_DYNAMIC_DISPATCH(sdpa_block_task)(args, mine);
  };
  pool.parallel_for(steps * pieces, std::ref(run));
  const auto join = [&](size_t index) {
    const size_t block = index / heads, head = index % heads;
    HWY_DYNAMIC_DISPATCH(sdpa_join_task)(args, task(block, head, head + 1));
  };
  // Waking the threads costs more than joining a few blocks.
  if (pieces >= 4 * pool.size()) {
    pool.parallel_for(args.blocks * heads, std::ref(join));
  } else {
    for (size_t i = 0; i < args.blocks * heads; ++i) join(i);
  }
}

}  // namespace

void bmm_f32(const float* a, const float* b, float* out, int64_t batch, int64_t m, int64_t n,
             int64_t k, ThreadPool& pool) {
  if (batch <= 0 || m <= 0 || n <= 0) return;
  const size_t rows = size_t(m), cols = size_t(n), depth = size_t(k);
  const size_t row_parts = parts(rows, kBmmRows), col_parts = parts(cols, kBmmCols);
  const auto run = [&](size_t task) {
    const size_t j = task % col_parts * kBmmCols;
    const size_t i = task / col_parts % row_parts * kBmmRows;
    const size_t item = task / col_parts / row_parts;
    HWY_DYNAMIC_DISPATCH(bmm_task)
    ({a + (item * rows + i) * depth, depth, std::min(kBmmRows, rows - i),
      b + item * depth * cols + j, cols, depth, out + (item * rows + i) * cols + j, cols,
      std::min(kBmmCols, cols - j)});
  };
  pool.parallel_for(size_t(batch) * row_parts * col_parts, std::ref(run));
}

void sdpa_f32(const SdpaShape& shape, const float* query, const StoredRows& key,
              const StoredRows& value, const float* mask, bool causal, int64_t start_pos,
              float scale, float* out, ThreadPool& pool) {
  if (shape.batch <= 0 || shape.t <= 0 || shape.heads <= 0 || shape.dim <= 0) return;
  SdpaArgs args{size_t(shape.batch),
                size_t(shape.t),
                size_t(shape.heads),
                size_t(shape.kv_heads),
                size_t(shape.dim),
                size_t(shape.context),
                query,
                key,
                value,
                mask,
                causal,
                size_t(start_pos),
                scale,
                out,
                0,
                0};
  args.block = std::min(args.t, std::max<size_t>(1, kAttentionRows / args.group()));
  args.blocks = parts(args.t, args.block);
  const bool few = args.t * args.group() <= kFewQueryRows;
  const bool split = few || args.blocks * args.batch * args.kv_heads < 2 * pool.size();
  if (split && args.blocks <= kMaxSplitBlocks) {
    sdpa_split(args, pool);
  } else {
    sdpa_whole(args, pool);
  }
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
