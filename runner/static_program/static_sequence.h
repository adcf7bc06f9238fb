// StaticSequence runs one sequence of tokens through the methods of a static program. It has the
// chunks, masks, caches and states, which are outside of the programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"
#include "runner/decoder.h"
#include "runner/image_spans.h"
#include "runner/memory.h"
#include "runner/method.h"
#include "runner/static_program/attention_mask.h"
#include "runner/static_program/kv_manager.h"
#include "runner/static_program/lookahead.h"
#include "runner/static_program/static_method.h"

namespace ferry::runner {

// Rows of logits as f32, converted from the dtype of the program.
class LogitsReader {
 public:
  // `dtype` is a floating-point dtype for which is_castable() holds, or u8 or u16 with an encoding.
  LogitsReader(DType dtype, std::optional<Encoding> encoding, int64_t vocab)
      : dtype_(dtype), encoding_(encoding), vocab_(static_cast<size_t>(vocab)) {}

  // Returns rows [begin, begin + count) of [1, AR, V]. They are valid until the next call or until
  // `logits` ends. Allocates only for more rows than before.
  std::span<const float> rows(const TensorView& logits, size_t begin, size_t count);

 private:
  DType dtype_;
  std::optional<Encoding> encoding_;
  size_t vocab_;
  std::vector<float> floats_;
};

class StaticSequence {
 public:
  // kBadInput or kUnsupported for inputs and outputs that do not follow the protocol; kUsage for a
  // mode that the methods do not have; kIo for more memory than `budget` has. `file` begins error
  // messages.
  static Result<StaticSequence> make(StaticMethods methods, const DecodeOptions& options,
                                     MemoryBudget& budget, const std::string& file);
  StaticSequence(StaticSequence&&) = default;
  StaticSequence& operator=(StaticSequence&&) = default;

  // Like the functions of Decoder. forward() returns the logits of the last token.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens);
  Result<std::optional<int64_t>> advance(int64_t token, const Decoder::Choose& choose);
  void restart();
  int64_t position() const { return position_; }
  // Returns the positions that kv_forward can cache: CL - AR.
  int64_t capacity() const { return kv_.columns_cached(); }
  std::optional<LookaheadCounts> lookahead_counts() const;
  // Sets the rows of images, of `width` values each.
  void set_images(std::span<const EmbeddingRows> rows, int64_t width) {
    if (two_way_images_) images_.set(rows, width);
  }
  int64_t tokens_together(int64_t position) const { return images_.end_at(position) - position; }
  void set_logits_sink(Decoder::LogitsSink sink) { sink_ = std::move(sink); }

  int64_t vocab() const { return kv_.ports.vocab; }
  DecodeMode mode() const { return mode_; }
  // Returns how many rows of the current call are tokens at positions from position() on, or 0 for
  // guesses.
  int64_t call_tokens() const { return call_tokens_; }
  uint64_t cache_bytes() const {
    return caches_->bytes() + (prefill_caches_ ? prefill_caches_->bytes() : 0);
  }

  // A cache or state, which is kept between calls, as f32.
  struct Floats {
    Shape shape;
    std::vector<float> values;
  };
  // Returns keys or values of the positions so far, [1,position(),G,D], or nullopt for layers
  // without a cache.
  std::optional<Floats> cache(int64_t layer, bool is_key) const;
  // Returns a state by the name of its input, or nullopt for other names.
  std::optional<Floats> state(std::string_view port) const;

 private:
  // A method and its arguments.
  struct Call {
    std::unique_ptr<StaticMethod> method;
    StaticPorts ports;
    std::vector<AttentionMask> masks;
    std::vector<int32_t> ids, positions;    // [ar]
    std::vector<int32_t> parents, offsets;  // for tokens that follow each other
    std::vector<NewColumns> columns;        // by cache, after a run
    std::vector<size_t> states;             // by state of the method, indices into states_
    std::optional<LogitsReader> logits;

    int64_t columns_cached() const { return ports.cl - ports.ar; }
  };
  // The kind of call for which the caches and the mask are arranged.
  enum class Arrangement { kNone, kKv, kPrefill, kLookahead };

  StaticSequence() = default;
  static Result<Call> make_call(std::unique_ptr<StaticMethod> method, std::string_view name,
                                std::optional<int64_t> window, MemoryBudget& budget,
                                const std::string& file);
  Status set_mode(const DecodeOptions& options, const std::string& file);
  Status make_caches(MemoryBudget& budget, ThreadPool* pool);
  KvManager& caches_of(const Call& call);
  void connect(Call& call);

  // Returns how many of the next tokens go through prefill_forward, or 0.
  int64_t prefill_tokens(int64_t count) const;
  Status activate(Arrangement arrangement);
  // Makes one call, for which `ids` are set. `count` of its rows are kept.
  Status run(Call& call);
  Status run_tokens(Call& call, std::span<const int64_t> tokens);
  Status keep(Call& call, int64_t count, std::span<const bool> selected);
  Status keep_columns(const Call& call, int64_t count, std::span<const bool> selected);
  Result<std::optional<int64_t>> choose_rows(const Decoder::Choose& choose, int64_t& count);
  void grow_guesses();
  // Lets the rows of an image in a call of `count` tokens see each other, or not any more.
  void show_images(Call& call, int64_t count, bool seen);

  DecodeMode mode_ = DecodeMode::kHybrid;
  Call kv_;
  std::optional<Call> prefill_;
  // caches of kv_forward, and of prefill_forward unless that has its own
  std::optional<KvManager> caches_;
  // The caches of prefill_forward if its codes represent other numbers: the same columns, each
  // converted from the outputs of its call. Columns that no longer fit are left out, and
  // prefill_forward is not called any more.
  std::optional<KvManager> prefill_caches_;
  std::vector<std::vector<std::byte>> states_;
  std::optional<Lookahead> lookahead_;
  LookaheadCounts counts_;
  std::vector<int32_t> likeliest_;
  Arrangement arrangement_ = Arrangement::kNone;
  bool two_way_images_ = false, two_way_in_windows_ = false;
  ImageSpans images_;  // empty unless the rows of an image attend to each other
  int64_t position_ = 0, call_tokens_ = 0;
  Decoder::LogitsSink sink_;
};

}  // namespace ferry::runner
